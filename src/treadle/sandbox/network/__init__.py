"""A network of chosen hosts: commands reach them through an egress proxy that checks each one."""
