"""The verbs that find out what is wrong, and gather what others need to find it out."""
