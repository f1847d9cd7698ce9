"""Takes over what users have configured for other agents, without replacing anything of theirs."""
