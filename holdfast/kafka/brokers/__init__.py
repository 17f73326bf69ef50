"""What each request goes through on its way to a broker: an open connection, and the pauses that a broker asks for."""
