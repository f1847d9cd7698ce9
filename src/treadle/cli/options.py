"""The start options of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from argparse import Namespace


class ServerOptions(NamedTuple):
    """The options of `treadle app-server`; the defaults are those of a plain start."""

    listen: str = "stdio://"
    config: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    strict_config: bool = False
    ws_auth: Literal["capability-token", "signed-bearer-token"] | None = None
    ws_token_file: str | None = None
    ws_token_sha256: str | None = None
    ws_shared_secret_file: str | None = None
    ws_issuer: str | None = None
    ws_audience: str | None = None
    ws_max_clock_skew_seconds: int | None = None
    max_connections: int | None = None
    max_strangers: int | None = None
    initialize_timeout_seconds: int | None = None

    @classmethod
    def parsed(cls, args: Namespace) -> ServerOptions:
        """Return the options of a parsed command line, from before and after the subcommand."""
        return cls(
            listen="stdio://" if args.stdio else args.listen,
            config=(*args.config, *args.config_nested),
            enable=(*args.enable, *args.enable_nested),
            disable=(*args.disable, *args.disable_nested),
            strict_config=args.strict_config,
            ws_auth=args.ws_auth,
            ws_token_file=args.ws_token_file,
            ws_token_sha256=args.ws_token_sha256,
            ws_shared_secret_file=args.ws_shared_secret_file,
            ws_issuer=args.ws_issuer,
            ws_audience=args.ws_audience,
            ws_max_clock_skew_seconds=args.ws_max_clock_skew_seconds,
            max_connections=args.max_connections,
            max_strangers=args.max_strangers,
            initialize_timeout_seconds=args.initialize_timeout_seconds,
        )
