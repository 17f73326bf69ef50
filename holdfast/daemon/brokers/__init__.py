"""The brokers that the log needs: who is silent, and since when."""
