"""Login by tokens (SASL OAUTHBEARER): where they come from, and kept until they are nearly over.

Source: KIP-255 and KIP-768; RFC 6749, 4.4 for client credentials; RFC 7519 for the token; RFC 7628 for how it is shown.
"""
