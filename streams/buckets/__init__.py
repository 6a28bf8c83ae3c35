"""The stores. `base` is the Protocol, `url.open_bucket` the door, and each other file is one backend."""
