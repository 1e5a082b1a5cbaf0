"""One delivery engine for the overlays. See docs/decisions/0024-one-delivery-engine.md.

engine.py        batches with regions, rounds, reports, receipts
outstanding.py   what peers owe each other on a link, refusals, patience
lives.py         the once-only table with its floors
region.py        what the engine asks of an overlay: the router
"""
