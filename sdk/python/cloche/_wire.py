"""Messages of cloche.v1, made of the descriptors that were packed with this package.

There is no generated code, so any protobuf runtime from 4.21 on will do.
"""
import importlib.resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "cloche.v1"


def _load_pool():
    try:
        data = (importlib.resources.files(__package__) / "cloche.protoset").read_bytes()
    except FileNotFoundError:
        raise ImportError("cloche was imported from its sources, where its messages are not built\n"
                          "  remedy: pip install ./sdk/python") from None
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:  # each after what it imports
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _load_pool()
if hasattr(message_factory, "GetMessageClass"):
    class_of = message_factory.GetMessageClass
else:
    class_of = message_factory.MessageFactory(POOL).GetPrototype


def message(name):
    """The class of a message, by its full name."""
    return class_of(POOL.FindMessageTypeByName(name))


class Messages:
    """Every message of cloche.v1 by its name, and every value of its enumerations."""

    def __getattr__(self, name):
        try:
            found = message(f"{PACKAGE}.{name}")
        except KeyError:
            found = self._value(name)
        setattr(self, name, found)
        return found

    @staticmethod
    def _value(name):
        for enum in ENUMS:
            if name in enum.values_by_name:
                return enum.values_by_name[name].number
        raise AttributeError(f"{PACKAGE} has no {name}")


ENUMS = [POOL.FindEnumTypeByName(f"{PACKAGE}.{name}") for name in
         ("UnitState", "Outcome", "Reason", "Stream", "Language", "CellOutcome", "FileType", "FileChangeKind", "IdleAction")]
pb = Messages()


def language(name):
    """LANGUAGE_PYTHON of "python"."""
    try:
        return getattr(pb, f"LANGUAGE_{name.upper()}")
    except AttributeError:
        raise ValueError(f"language {name!r}: none of python, bash, javascript") from None


def name_of(enum, number):
    """OUTCOME_OOM_KILLED of Outcome is "OOM_KILLED"; what a newer server knows and we do not, its number."""
    descriptor = next(e for e in ENUMS if e.name == enum)
    value = descriptor.values_by_number.get(number)
    prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return value.name.removeprefix(prefix) if value else str(number)
