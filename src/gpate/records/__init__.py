"""Private records: the only package that reads or holds them. It takes public queries and gives back `Sensitive` values.

What this page exports is all that the rest of gpate may import: none of it can hand out a record. Raw records (`RawRecords`,
`EncodedRecords`, `TeacherRecords`, `Partition`) live in the modules below, which an import contract closes to everybody else. The
contract names its two exceptions: the commands `evaluate` and `report` read real records for the custodian (`gpate.records.confidential`).
"""

from gpate.records.chunks import SampledRecords
from gpate.records.content_hash import new_key
from gpate.records.mapped import CodedRecords, Mapped
from gpate.records.opening import HeldRecords, hold_records, is_path, open_records, source_of
from gpate.records.private_records import PrivateRecords
from gpate.records.teachers.discriminators import TEACHERS, DenseTeacher, LoudLabel, TeacherNetwork
from gpate.records.teachers.losses import NoisyLogistic, Wasserstein, logistic
from gpate.records.teachers.nearest import NearestTeachers
from gpate.records.teachers.record_gradients import record_gradients
from gpate.records.teachers.training import TeacherGroup, TeacherPlan, discriminator
from gpate.records.undeclared import read_columns, read_units

__all__ = [
    "TEACHERS",
    "CodedRecords",
    "DenseTeacher",
    "HeldRecords",
    "LoudLabel",
    "Mapped",
    "NearestTeachers",
    "NoisyLogistic",
    "PrivateRecords",
    "SampledRecords",
    "TeacherGroup",
    "TeacherNetwork",
    "TeacherPlan",
    "Wasserstein",
    "discriminator",
    "hold_records",
    "is_path",
    "logistic",
    "new_key",
    "open_records",
    "read_columns",
    "read_units",
    "record_gradients",
    "source_of",
]
