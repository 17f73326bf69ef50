"""Writers of the pages that are made from the code."""
