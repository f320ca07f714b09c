"""The clean room as two processes: a room and a platform, gRPC streams between them, both with certificates.

    keys           certificates and all key files of a collaboration: who holds which
    settings       room.toml and platform.toml
    service        the room's methods as gRPC handlers: deadlines, limits, refusals as statuses
    operation      from room.toml to a room that listens until it is asked to end; its store, for its operator
    remote_room    RemoteRoom: the platform's link to a room, which counts bytes and tries again
    status         how it stands: terms, what is left, whether the audit log holds; for either party
    agreement_file the agreement as a file: read, proposed, signed, amended, and told in plain words
    receipts       the receipts that a platform keeps
    platform_run   a platform's run through a room, by the agreement's mode
    trial          everything for a trial on one machine, made up data included

Methods of the service `tacit.Room`, bytes in and bytes out (the messages of `cleanroom.protocol`):

    Describe   nothing -> terms, what remains, the head of the audit log
    Step, Statistic, Labels   the request, then slabs -> the answer, in chunks
    Begin      the request, then slabs of tokens -> how many releases of each record the run has to itself
    Exchange   points, in chunks -> points, in chunks (private set intersection)
    Audit      from which entry on -> entries
"""

import os

# What gRPC has to say that matters comes as a status, in one line; below it, strangers could fill a log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
