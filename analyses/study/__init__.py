"""The main job of each system: train, construct, look inside, judge the claims, write the report."""
