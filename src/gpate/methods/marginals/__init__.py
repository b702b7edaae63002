"""Tables from low-order tables of counts."""
