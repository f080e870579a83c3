"""The main job end to end, through the command line, on labelled histories."""
