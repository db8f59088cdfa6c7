"""Tools: functions with a name, a description and a schema, as a card shows them and as a model calls them."""

import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Generic, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, overload

from forge_daemon.functions import name_of
from forge_daemon.proto.agent_pb2 import ToolSpec
from forge_daemon.values import json_of

__all__ = ["Tool", "schema_of", "tool", "tool_of"]

P = ParamSpec("P")
R = TypeVar("R")

SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
}


@dataclass(frozen=True)
class Tool(Generic[P, R]):
    """A tool that the agent's model can call. Made by `tool`, and can be called like the function it is made of."""

    #: What runs. Its parameters are given by name.
    run: Callable[P, R]
    #: The name that the model uses.
    name: str
    #: The description as the model sees it.
    description: str = ""
    #: JSON Schema of the parameters; None is not declared.
    input_schema: dict[str, Any] | None = None
    #: Version of the tool, for reports and comparisons.
    version: str = ""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs it directly; nothing of that is reported."""
        return self.run(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """The tool as a card shows it."""
        return ToolSpec(
            name=self.name,
            version=self.version,
            description=self.description,
            input_schema=None if self.input_schema is None else json_of(self.input_schema),
            type="function",
        )

    def run_with(self, arguments: dict[str, Any]) -> Any:
        """Runs it with arguments that a model gave. Raises TypeError if they do not fit its parameters."""
        try:
            parameters = inspect.signature(self.run).bind(**arguments)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        hints = _hints(self.run)
        values = {
            name: _value(hints.get(name, Any), value) if name in arguments else value
            for name, value in parameters.arguments.items()
        }
        parameters.arguments.update(values)
        return self.run(*parameters.args, **parameters.kwargs)


@overload
def tool(function: Callable[P, R]) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
    input_schema: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
    input_schema: dict[str, Any] | None = None,
) -> Any:
    """Makes a tool of a function, async or plain, with the name, the docstring and the signature that it has.

    `Annotated[str, "Name of the city"]` describes a parameter. A plain function runs in a thread when a turn runs it.
    """
    if function is None:
        return functools.partial(_tool, name=name, description=description, version=version, input_schema=input_schema)
    return _tool(function, name=name, description=description, version=version, input_schema=input_schema)


def _tool(
    function: Callable[..., Any],
    *,
    name: str | None,
    description: str | None,
    version: str,
    input_schema: dict[str, Any] | None,
) -> Tool[..., Any]:
    if not callable(function):
        raise TypeError(f"tool: a function, not {type(function).__name__}")
    return Tool(
        run=function,
        name=name or name_of(function),
        description=(inspect.getdoc(function) or "") if description is None else description,
        input_schema=schema_of(function) if input_schema is None else input_schema,
        version=version,
    )


def tool_of(given: "Tool[..., Any] | Callable[..., Any]") -> Tool[..., Any]:
    """A tool as it is, and a function as a tool."""
    return given if isinstance(given, Tool) else tool(given)


def by_name(tools: Iterable[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """The tools under their names. Raises ValueError if two have the same."""
    found: dict[str, Tool[..., Any]] = {}
    for one in tools:
        if one.name in found:
            raise ValueError(f'card.tools: two are called "{one.name}"')
        found[one.name] = one
    return found


# Schemas.


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """JSON Schema of a function's parameters. Raises TypeError for a signature that a model cannot call by names."""
    what, hints = name_of(function), _hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    is_open = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"tool {what}: a model gives parameters by name, which `{parameter}` does not allow")
        schema = _schema(hints.get(parameter.name, Any), definitions)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif _is_json(parameter.default):
            schema = {**schema, "default": parameter.default}
        properties[parameter.name] = schema
    result: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    result["additionalProperties"] = is_open
    return {**result, "$defs": definitions} if definitions else result


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    target = function if inspect.isroutine(function) else getattr(type(function), "__call__", function)  # noqa: B004
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"tool {name_of(function)}: cannot read its annotations ({error}); import the name, or give input_schema"
        ) from None


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of an annotation; one that is not known allows everything. Models' definitions are put aside."""
    if hint in SCALARS if isinstance(hint, type) or hint is None else False:
        return dict(SCALARS[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = _schema(arguments[0], definitions)
        texts = [note for note in arguments[1:] if isinstance(note, str)]
        return {**schema, "description": texts[0]} if texts else schema
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, definitions) for one in arguments]}
    if origin in (list, set, frozenset, tuple) or _is_sequence(origin):
        item = next((one for one in arguments if one is not Ellipsis), Any)
        return {"type": "array", "items": _schema(item, definitions)}
    if origin is dict or _is_mapping(origin):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if isinstance(hint, type):
        return _schema_of_class(hint, definitions)
    return {}


def _schema_of_class(hint: type, definitions: dict[str, Any]) -> dict[str, Any]:
    if issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        properties = {name: _schema(one, definitions) for name, one in hints.items()}
        required = sorted(getattr(hint, "__required_keys__", ()))
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}
    model_json_schema = getattr(hint, "model_json_schema", None)
    if callable(model_json_schema):  # A model of pydantic.
        schema = dict(model_json_schema())
        definitions.update(schema.pop("$defs", {}))
        return schema
    return {}


def _value(hint: Any, value: Any) -> Any:
    """A value of JSON as a function annotated with `hint` takes it: enums and models of pydantic are made of it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _value(arguments[0], value)
    if origin in (Union, types.UnionType):
        kinds = [one for one in arguments if one is not type(None)]
        return _value(kinds[0], value) if value is not None and len(kinds) == 1 else value
    if origin is list and isinstance(value, list):
        return [_value(arguments[0], item) for item in value]
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            return hint(value)
        if callable(validate := getattr(hint, "model_validate", None)):
            return validate(value)
    return value


def _is_sequence(origin: Any) -> bool:
    return getattr(origin, "__module__", "") == "collections.abc" and origin.__name__ in ("Sequence", "Iterable", "Set")


def _is_mapping(origin: Any) -> bool:
    return getattr(origin, "__module__", "") == "collections.abc" and origin.__name__ in ("Mapping", "MutableMapping")


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
