"""A saved model as one ONNX file, for serving where tacit is not: ids in, predictions out.

Inputs are `public` (N, public fields) and, unless the model is truncated, `sensitive` (N, sensitive fields):
int32, as the encoder gives them. The output is `probability` (N,), or `prediction` where the head is not
logistic. A truncated export holds nothing of the sensitive tables. The privacy statement is in the metadata.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import expect
from tacit.arrays import Floats32
from tacit.errors import BadInput
from tacit.files import place_file
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import BIAS, TABLE, FactorizationMachine, LogisticRegression
from tacit.train.models.model import Architecture, Model, Part
from tacit.train.models.saving import SavedModel
from tacit.train.promise_words import NO_PROMISE
from tacit.train.statistic.model import FieldFmModel
from tacit.train.statistic.offset import OffsetModel, own_model
from tacit.train.targets import MOST_SCORE, Head

OPSET = 17
IR_VERSION = 8  # what opset 17 came with; runtimes since 2022 read both
LARGEST_BYTES = 2**31 - 2**20  # a file of this format ends below 2 GB; some of it is for the graph


def check_exportable(shape: Architecture, weights: int) -> None:
    """Refuse, before a model of this shape with `weights` bytes of weights is trained, what no file holds."""
    try:
        importlib.import_module("onnx")
    except ImportError:
        raise BadInput("expected onnx for an export, got none: pip install 'tacit[export]'") from None
    if not isinstance(shape, FactorizationMachine | LogisticRegression | Mlp):
        raise BadInput(f"expected an fm, logistic or mlp to export, got {shape.name}, which has no graph yet")
    if weights > LARGEST_BYTES:
        raise BadInput(f"expected at most {LARGEST_BYTES} bytes of weights in an ONNX file, got {weights}")


def export_onnx(
    saved: SavedModel, path: str | Path, *, part: Part | None = None, overwrite: bool = False
) -> None:
    """Write the model, or its truncated part alone, as an ONNX file."""
    expect.kind("saved", saved, SavedModel)
    own = own_model(saved.model)
    shape = own.architecture
    check_exportable(shape, 0)  # how large it is, one knows when the graph is there
    from onnx import TensorProto, checker, helper

    sides = _sides(own, part or saved.part)
    graph = GraphBuilder()
    score = _network(graph, own, shape, sides) if isinstance(shape, Mlp) else _machine(graph, own, sides)
    if isinstance(saved.model, OffsetModel):
        score = graph.add("Add", score, _fixed_score(graph, saved.model.fixed))
    output = "probability" if saved.head is Head.LOGISTIC else "prediction"
    _mean(graph, saved.head, score, output)
    size = sum(array.nbytes for array in graph.constants.values())
    if size > LARGEST_BYTES:
        raise BadInput(f"expected at most {LARGEST_BYTES} bytes of weights in an ONNX file, got {size}")
    built = helper.make_model(
        helper.make_graph(
            graph.nodes,
            f"tacit-{saved.model.architecture.name}",
            [helper.make_tensor_value_info(side, TensorProto.INT32, ["N", n]) for side, n in sides.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N"])],
            initializer=graph.initializers(),
        ),
        producer_name="tacit",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(built, _metadata(saved, sides))
    checker.check_model(built, full_check=True)
    place_file(Path(path), built.SerializeToString(), what="the ONNX model", overwrite=overwrite)


@dataclass
class GraphBuilder:
    """Nodes and constants by name, in the order in which they are needed."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)

    def constant(self, name: str, array: NDArray[Any]) -> str:
        self.constants[name] = array
        return name

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """One more operation; the name of what it gives."""
        from onnx import helper

        name = output or f"{kind.lower()}-{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def sum(self, value: str, *axes: int) -> str:
        along = self.constant(f"axes-{'-'.join(map(str, axes))}", np.array(axes, np.int64))
        return self.add("ReduceSum", value, along, keepdims=0)

    def initializers(self) -> list[Any]:
        from onnx import numpy_helper

        return [numpy_helper.from_array(array, name) for name, array in self.constants.items()]


def _sides(model: Model, part: Part) -> dict[str, int]:
    """The inputs by name, with their fields."""
    sides = {"public": model.sizes.public_fields, "sensitive": model.sizes.sensitive_fields}
    if part is Part.TRUNCATED:
        del sides["sensitive"]
    sides = {side: fields for side, fields in sides.items() if fields}
    if not sides:
        raise BadInput("expected at least one field to export a model of, got none")
    return sides


def _machine(graph: GraphBuilder, model: Model, sides: dict[str, int]) -> str:
    """bias + sum of weights + (|S|^2 - Q) / 2, from a table for each side: no id reaches the other side's."""
    first = model.sizes.public_rows
    rows: dict[str, Floats32] = {
        "public": model.tables[TABLE][:first],
        "sensitive": model.tables[TABLE][first:],
    }
    score = graph.constant(BIAS, model.dense[BIAS])
    embeddings = []
    for side in sides:
        weights = graph.constant(f"{side}.weights", np.ascontiguousarray(rows[side][:, 0]))
        score = graph.add("Add", score, graph.sum(graph.add("Gather", weights, side), 1))  # (N,)
        if rows[side].shape[1] > 1:
            table = graph.constant(f"{side}.embeddings", np.ascontiguousarray(rows[side][:, 1:]))
            embeddings.append(graph.add("Gather", table, side))  # (N, fields, dim)
    if not embeddings:
        return score
    return graph.add("Add", score, _pairs(graph, graph.add("Concat", *embeddings, axis=1)))


def _fixed_score(graph: GraphBuilder, fixed: FieldFmModel) -> str:
    """What was fitted to a statistic: every public field has rows of its own."""
    size, table = fixed.sizes, fixed.table
    starts = np.arange(size.public_fields, dtype=np.int32)[None, :] * np.int32(size.public_rows)
    ids = graph.add("Add", "public", graph.constant("statistic.starts", starts))
    weights = graph.constant("statistic.weights", np.ascontiguousarray(table[:, 0]))
    alone = graph.sum(graph.add("Gather", weights, ids), 1)
    score = graph.add("Add", graph.constant("statistic.bias", fixed.bias), alone)
    if table.shape[1] == 1:
        return score
    factors = graph.constant("statistic.factors", np.ascontiguousarray(table[:, 1:]))
    return graph.add("Add", score, _pairs(graph, graph.add("Gather", factors, ids)))


def _pairs(graph: GraphBuilder, every: str) -> str:
    """(|S|^2 - Q) / 2 of embeddings (N, fields, dim)."""
    total = graph.sum(every, 1)  # S: (N, dim)
    pairs = graph.add(
        "Sub",
        graph.sum(graph.add("Mul", total, total), 1),
        graph.sum(graph.add("Mul", every, every), 1, 2),
    )
    half = graph.constant("half", np.array(0.5, np.float32))
    return graph.add("Mul", half, pairs)


def _network(graph: GraphBuilder, model: Model, shape: Mlp, sides: dict[str, int]) -> str:
    read = {}
    for side, fields in sides.items():
        gathered = graph.add("Gather", graph.constant(f"{side}.embeddings", model.tables[side]), side)
        flat = graph.constant(f"{side}.shape", np.array([0, fields * shape.dim], np.int64))  # 0: as it was, N
        read[side] = graph.add("Reshape", gathered, flat)
    hidden = read.get("public")
    for index in range(len(shape.public_layers)):
        if hidden is None:
            raise BadInput("expected public fields below public layers, got none")
        hidden = graph.add("Relu", _linear(graph, model, f"public.{index}", hidden))
    towers = [tower for tower in (hidden, read.get("sensitive")) if tower is not None]
    joined = graph.add("Concat", *towers, axis=1)
    below = shape.public_layers[-1] if shape.public_layers else model.sizes.public_fields * shape.dim
    used = below + (model.sizes.sensitive_fields * shape.dim if "sensitive" in sides else 0)
    for index in range(len(shape.common_layers)):
        joined = graph.add("Relu", _linear(graph, model, f"common.{index}", joined, None if index else used))
    score = _linear(graph, model, "output", joined, None if shape.common_layers else used)  # (N, 1)
    return graph.add("Squeeze", score, graph.constant("last", np.array([1], np.int64)))


def _linear(graph: GraphBuilder, model: Model, name: str, inputs: str, used: int | None = None) -> str:
    """A layer, or only its first `used` columns where the rest would meet a tower that is left out."""
    weight = np.ascontiguousarray(model.dense[f"{name}.weight"][:, :used])
    bias = graph.constant(f"{name}.bias", model.dense[f"{name}.bias"])
    return graph.add("Gemm", inputs, graph.constant(f"{name}.weight", weight), bias, transB=1)


def _mean(graph: GraphBuilder, head: Head, score: str, output: str) -> None:
    if head is Head.LOGISTIC:
        graph.add("Sigmoid", score, output=output)
    elif head is Head.POISSON:
        ends = [graph.constant(f"end-{sign}", np.array(sign * MOST_SCORE, np.float32)) for sign in (-1, 1)]
        graph.add("Exp", graph.add("Clip", score, *ends), output=output)
    else:
        graph.add("Identity", score, output=output)


def _metadata(saved: SavedModel, sides: dict[str, int]) -> dict[str, str]:
    return {
        "tacit.architecture": saved.model.architecture.name,
        "tacit.head": str(saved.head),
        "tacit.inputs": ", ".join(sides),
        "tacit.encoder_digest": saved.encoder.digest,
        "tacit.synthetic": json.dumps(saved.synthetic),
        "tacit.privacy_statement": NO_PROMISE if saved.statement is None else json.dumps(dict(saved.statement)),
    }
