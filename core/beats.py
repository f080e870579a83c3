"""Names of the cursors in which parts that keep running leave the Unix time of their last sign of life."""

DETECT = "detect.heartbeat"
DETECT_STANDBY = "detect.standby"
DELIVER = "deliver.heartbeat"
EVERY_S = 10.0
