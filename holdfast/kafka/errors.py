"""What the ground floor refuses or cannot do; those who call it say what that means for them."""


class PropertyRefused(Exception):
    """A property of the Kafka client cannot be used; the text names it as the setting does, `kafka.` in front."""
