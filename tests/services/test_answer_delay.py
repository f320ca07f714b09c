"""An answer on a connection that is kept leaves at once, whole: nothing of it waits for the caller's word."""

from __future__ import annotations

import socket

from tacit.services.launch import _open_socket
from tacit.services.settings import ListenSettings


def test_what_is_accepted_sends_without_delay() -> None:
    with (
        _open_socket(ListenSettings("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as _caller,
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
