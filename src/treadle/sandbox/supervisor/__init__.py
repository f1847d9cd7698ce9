"""The supervisor: the process that starts commands, limits them and kills what they started."""
