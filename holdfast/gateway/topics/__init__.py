"""The topics that a gateway offers: which may be (`patterns`), which there are (`known`), who asks (`asking`) and who is asked (`source`).

`offered` has all of it together, and the time at which brokers are asked.
"""
