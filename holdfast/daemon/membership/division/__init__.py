"""Who gets which log partitions and duties: what members say, the division that their leader makes, and what it sends to them."""
