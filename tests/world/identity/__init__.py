"""Who a client is and what it may do: certificates and their subjects, a secured node and its clients, access rules."""
