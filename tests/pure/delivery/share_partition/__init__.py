"""A share partition, by itself, beside a naive one, and with deliberate bugs."""
