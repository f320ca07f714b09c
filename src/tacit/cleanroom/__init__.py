"""Conversion models across two organisations: one has features, the other labels; a room joins them.

`protocol`    what both parties share: terms and agreement, messages, codecs, tokens, the audit log
`room`        the party with the labels: joins, flips or clips, adds up, and lets out only what was agreed
`model`       the conversion model and its gated adapters, one for each sensitive advertiser
`platform`    the party with the features: trains an adapter against a room
`in_process`  a room in the same process, behind the link that the platform uses for a remote one
`attacks`     what an adversary tries, against published protocols and against our room
`audit`       claims of the room that are tested by experiment, each with a twin that must be caught
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.cleanroom.in_process import room_in_process
    from tacit.cleanroom.model.examples import ConversionExamples, advertiser_key
    from tacit.cleanroom.model.frames import ClickReader
    from tacit.cleanroom.model.learning import LearnSettings, predict, pretrain
    from tacit.cleanroom.model.network import ConversionModel
    from tacit.cleanroom.platform.released_labels import train_on_released
    from tacit.cleanroom.platform.statistic import fit_statistic
    from tacit.cleanroom.platform.steps import AdapterPlan
    from tacit.cleanroom.platform.training import train_adapter
    from tacit.cleanroom.protocol.agreement import Agreement, loosened_fields
    from tacit.cleanroom.protocol.modes import (
        Join,
        Mode,
        NoiseLaw,
        Signer,
        best_advantage,
        posterior_of_positive,
        terms_statement,
    )
    from tacit.cleanroom.protocol.requests import RoomLink
    from tacit.cleanroom.protocol.signatures import new_key, public_key
    from tacit.cleanroom.protocol.terms import Terms, terms_from_toml
    from tacit.cleanroom.protocol.tokens import record_tokens, token_key, tokens
    from tacit.cleanroom.room.labels import labels_of_frame
    from tacit.cleanroom.room.party import Room
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "in_process": "room_in_process",
            "model.examples": "ConversionExamples advertiser_key",
            "model.frames": "ClickReader",
            "model.learning": "LearnSettings predict pretrain",
            "model.network": "ConversionModel",
            "platform.released_labels": "train_on_released",
            "platform.statistic": "fit_statistic",
            "platform.steps": "AdapterPlan",
            "platform.training": "train_adapter",
            "protocol.agreement": "Agreement loosened_fields",
            "protocol.modes": "Join Mode NoiseLaw Signer best_advantage posterior_of_positive terms_statement",
            "protocol.requests": "RoomLink",
            "protocol.signatures": "new_key public_key",
            "protocol.terms": "Terms terms_from_toml",
            "protocol.tokens": "record_tokens token_key tokens",
            "room.labels": "labels_of_frame",
            "room.party": "Room",
        },
    )

__all__ = [
    "AdapterPlan", "Agreement", "ClickReader", "ConversionExamples", "ConversionModel", "Join",
    "LearnSettings", "Mode", "NoiseLaw", "Room", "RoomLink", "Signer", "Terms", "advertiser_key",
    "best_advantage", "fit_statistic", "labels_of_frame", "loosened_fields", "new_key",
    "posterior_of_positive", "predict", "pretrain", "public_key", "record_tokens", "room_in_process",
    "terms_from_toml", "terms_statement", "token_key", "tokens", "train_adapter", "train_on_released",
]  # fmt: skip
