"""What TensorBoard's event files hold: scalars, texts, and the hyperparameters of a session, as protocol buffers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from lethe.integrations.logging.description import Setting


def tensorboard_module(name: str) -> Any:
    """A module of tensorboard, whose protocol buffers have no types."""
    return import_module(f"tensorboard.{name}")


def scalars(values: Mapping[str, float]) -> Any:
    """Numbers by tag; written with 32 bits."""
    proto = tensorboard_module("compat.proto.summary_pb2")
    return proto.Summary(value=[proto.Summary.Value(tag=name, simple_value=value) for name, value in values.items()])


def text(name: str, words: str) -> Any:
    """A text, which TensorBoard shows as Markdown."""
    shape = tensorboard_module("compat.proto.tensor_shape_pb2").TensorShapeProto
    tensor = tensorboard_module("compat.proto.tensor_pb2").TensorProto(
        dtype="DT_STRING", string_val=[words.encode()], tensor_shape=shape(dim=[shape.Dim(size=1)])
    )
    return _tensor(name, "text", tensor=tensor)


def session_begins(settings: Mapping[str, Setting]) -> Any:
    """The hyperparameters of a session."""
    hparams = tensorboard_module("plugins.hparams.plugin_data_pb2")
    started = hparams.SessionStartInfo(start_time_secs=time.time())
    for name, value in settings.items():
        field = "bool_value" if isinstance(value, bool) else "string_value" if isinstance(value, str) else "number_value"
        setattr(started.hparams[name], field, value)
    return _hparams("SESSION_START_INFO_TAG", session_start_info=started)


def session_ends(*, well: bool) -> Any:
    """The end of a session, and whether it was a good one."""
    hparams, api = tensorboard_module("plugins.hparams.plugin_data_pb2"), tensorboard_module("plugins.hparams.api_pb2")
    ended = hparams.SessionEndInfo(status=api.STATUS_SUCCESS if well else api.STATUS_FAILURE, end_time_secs=time.time())
    return _hparams("SESSION_END_INFO_TAG", session_end_info=ended)


def _hparams(tag: str, **content: Any) -> Any:
    metadata = tensorboard_module("plugins.hparams.metadata")
    data = tensorboard_module("plugins.hparams.plugin_data_pb2").HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content)
    return _tensor(getattr(metadata, tag), metadata.PLUGIN_NAME, content=data.SerializeToString())


def _tensor(tag: str, plugin: str, *, content: bytes = b"", **value: Any) -> Any:
    proto = tensorboard_module("compat.proto.summary_pb2")
    shown_by = proto.SummaryMetadata(plugin_data=proto.SummaryMetadata.PluginData(plugin_name=plugin, content=content))
    return proto.Summary(value=[proto.Summary.Value(tag=tag, metadata=shown_by, **value)])
