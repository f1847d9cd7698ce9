"""What a server is started with."""

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
    def parsed(cls, given: Namespace) -> ServerOptions:
        """The options as the command line gives them, before and after the subcommand."""
        return cls(
            listen="stdio://" if given.stdio else given.listen,
            config=(*given.config, *given.config_nested),
            enable=(*given.enable, *given.enable_nested),
            disable=(*given.disable, *given.disable_nested),
            strict_config=given.strict_config,
            ws_auth=given.ws_auth,
            ws_token_file=given.ws_token_file,
            ws_token_sha256=given.ws_token_sha256,
            ws_shared_secret_file=given.ws_shared_secret_file,
            ws_issuer=given.ws_issuer,
            ws_audience=given.ws_audience,
            ws_max_clock_skew_seconds=given.ws_max_clock_skew_seconds,
            max_connections=given.max_connections,
            max_strangers=given.max_strangers,
            initialize_timeout_seconds=given.initialize_timeout_seconds,
        )
