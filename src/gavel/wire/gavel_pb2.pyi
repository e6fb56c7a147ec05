from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    QUEUED: _ClassVar[JobState]
    RUNNING: _ClassVar[JobState]
    PREEMPTED: _ClassVar[JobState]
    COMPLETED: _ClassVar[JobState]
    FAILED: _ClassVar[JobState]
    CANCELLED: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
QUEUED: JobState
RUNNING: JobState
PREEMPTED: JobState
COMPLETED: JobState
FAILED: JobState
CANCELLED: JobState

class JobRequest(_message.Message):
    __slots__ = ("name", "template", "command", "steps", "workers", "weight", "entity", "deadline_seconds", "types", "environment", "retries", "working_directory", "user", "private", "secrets", "prefer", "launcher", "grace_seconds", "time_limit_seconds", "idle_timeout_seconds", "hold", "after", "tags", "gpu_memory_bytes", "cpus", "memory_bytes", "notify", "venv", "modules", "container", "terminal", "array", "grid", "at_once", "array_id", "index", "parameters")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    PREFER_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    VENV_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    ARRAY_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    template: str
    command: _containers.RepeatedScalarFieldContainer[str]
    steps: float
    workers: int
    weight: float
    entity: str
    deadline_seconds: float
    types: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    retries: int
    working_directory: str
    user: str
    private: bool
    secrets: _containers.RepeatedScalarFieldContainer[str]
    prefer: _containers.RepeatedScalarFieldContainer[str]
    launcher: str
    grace_seconds: float
    time_limit_seconds: float
    idle_timeout_seconds: float
    hold: bool
    after: _containers.RepeatedScalarFieldContainer[str]
    tags: _containers.ScalarMap[str, str]
    gpu_memory_bytes: int
    cpus: float
    memory_bytes: int
    notify: _containers.RepeatedScalarFieldContainer[str]
    venv: str
    modules: _containers.RepeatedScalarFieldContainer[str]
    container: str
    terminal: bool
    array: str
    grid: _containers.RepeatedCompositeFieldContainer[GridAxis]
    at_once: int
    array_id: str
    index: int
    parameters: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., template: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., steps: _Optional[float] = ..., workers: _Optional[int] = ..., weight: _Optional[float] = ..., entity: _Optional[str] = ..., deadline_seconds: _Optional[float] = ..., types: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., retries: _Optional[int] = ..., working_directory: _Optional[str] = ..., user: _Optional[str] = ..., private: _Optional[bool] = ..., secrets: _Optional[_Iterable[str]] = ..., prefer: _Optional[_Iterable[str]] = ..., launcher: _Optional[str] = ..., grace_seconds: _Optional[float] = ..., time_limit_seconds: _Optional[float] = ..., idle_timeout_seconds: _Optional[float] = ..., hold: _Optional[bool] = ..., after: _Optional[_Iterable[str]] = ..., tags: _Optional[_Mapping[str, str]] = ..., gpu_memory_bytes: _Optional[int] = ..., cpus: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., notify: _Optional[_Iterable[str]] = ..., venv: _Optional[str] = ..., modules: _Optional[_Iterable[str]] = ..., container: _Optional[str] = ..., terminal: _Optional[bool] = ..., array: _Optional[str] = ..., grid: _Optional[_Iterable[_Union[GridAxis, _Mapping]]] = ..., at_once: _Optional[int] = ..., array_id: _Optional[str] = ..., index: _Optional[int] = ..., parameters: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GridAxis(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class Secrets(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("jobs", "key", "secrets")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRequest]
    key: str
    secrets: _containers.RepeatedCompositeFieldContainer[Secrets]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRequest, _Mapping]]] = ..., key: _Optional[str] = ..., secrets: _Optional[_Iterable[_Union[Secrets, _Mapping]]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Transition(_message.Message):
    __slots__ = ("time", "state", "reason", "code")
    TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    time: float
    state: JobState
    reason: str
    code: str
    def __init__(self, time: _Optional[float] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("server", "accelerators")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    server: str
    accelerators: int
    def __init__(self, server: _Optional[str] = ..., accelerators: _Optional[int] = ...) -> None: ...

class JobView(_message.Message):
    __slots__ = ("id", "request", "state", "reason", "submitted", "changed", "ended", "steps_done", "type", "places", "beside", "attempts", "failures", "restarts", "received", "code", "exit_code", "warning")
    class ReceivedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    STEPS_DONE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    id: str
    request: JobRequest
    state: JobState
    reason: str
    submitted: float
    changed: float
    ended: float
    steps_done: float
    type: str
    places: _containers.RepeatedCompositeFieldContainer[Place]
    beside: str
    attempts: int
    failures: int
    restarts: int
    received: _containers.ScalarMap[str, float]
    code: str
    exit_code: int
    warning: str
    def __init__(self, id: _Optional[str] = ..., request: _Optional[_Union[JobRequest, _Mapping]] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[str] = ..., submitted: _Optional[float] = ..., changed: _Optional[float] = ..., ended: _Optional[float] = ..., steps_done: _Optional[float] = ..., type: _Optional[str] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., beside: _Optional[str] = ..., attempts: _Optional[int] = ..., failures: _Optional[int] = ..., restarts: _Optional[int] = ..., received: _Optional[_Mapping[str, float]] = ..., code: _Optional[str] = ..., exit_code: _Optional[int] = ..., warning: _Optional[str] = ...) -> None: ...

class JobDetail(_message.Message):
    __slots__ = ("job", "history", "shares", "limit", "rates")
    class SharesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class RatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    job: JobView
    history: _containers.RepeatedCompositeFieldContainer[Transition]
    shares: _containers.ScalarMap[str, float]
    limit: str
    rates: _containers.ScalarMap[str, float]
    def __init__(self, job: _Optional[_Union[JobView, _Mapping]] = ..., history: _Optional[_Iterable[_Union[Transition, _Mapping]]] = ..., shares: _Optional[_Mapping[str, float]] = ..., limit: _Optional[str] = ..., rates: _Optional[_Mapping[str, float]] = ...) -> None: ...

class JobList(_message.Message):
    __slots__ = ("jobs", "next")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobView]
    next: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobView, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class JobQuery(_message.Message):
    __slots__ = ("ids", "states", "limit", "ended_after", "names", "entity", "after", "without_finished", "without_unfinished", "most_finished", "user", "name_patterns", "tags", "arrays", "ranges")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    IDS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AFTER_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FINISHED_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    MOST_FINISHED_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_PATTERNS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[JobState]
    limit: int
    ended_after: float
    names: _containers.RepeatedScalarFieldContainer[str]
    entity: str
    after: str
    without_finished: bool
    without_unfinished: bool
    most_finished: int
    user: str
    name_patterns: _containers.RepeatedScalarFieldContainer[str]
    tags: _containers.ScalarMap[str, str]
    arrays: _containers.RepeatedScalarFieldContainer[str]
    ranges: _containers.RepeatedCompositeFieldContainer[IdRange]
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[_Union[JobState, str]]] = ..., limit: _Optional[int] = ..., ended_after: _Optional[float] = ..., names: _Optional[_Iterable[str]] = ..., entity: _Optional[str] = ..., after: _Optional[str] = ..., without_finished: _Optional[bool] = ..., without_unfinished: _Optional[bool] = ..., most_finished: _Optional[int] = ..., user: _Optional[str] = ..., name_patterns: _Optional[_Iterable[str]] = ..., tags: _Optional[_Mapping[str, str]] = ..., arrays: _Optional[_Iterable[str]] = ..., ranges: _Optional[_Iterable[_Union[IdRange, _Mapping]]] = ...) -> None: ...

class IdRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class JobUpdate(_message.Message):
    __slots__ = ("job", "caught_up", "jobs")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    job: JobView
    caught_up: bool
    jobs: _containers.RepeatedCompositeFieldContainer[JobView]
    def __init__(self, job: _Optional[_Union[JobView, _Mapping]] = ..., caught_up: _Optional[bool] = ..., jobs: _Optional[_Iterable[_Union[JobView, _Mapping]]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class JobsRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class EditRequest(_message.Message):
    __slots__ = ("ids", "changes", "fields")
    IDS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    changes: JobRequest
    fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., changes: _Optional[_Union[JobRequest, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ...) -> None: ...

class ResubmitRequest(_message.Message):
    __slots__ = ("ids", "key", "changes", "fields", "secrets")
    class SecretsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    IDS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    key: str
    changes: JobRequest
    fields: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.ScalarMap[str, str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ..., changes: _Optional[_Union[JobRequest, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TerminalInput(_message.Message):
    __slots__ = ("id", "data", "rows", "columns", "offset", "tail", "linger_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    LINGER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: bytes
    rows: int
    columns: int
    offset: int
    tail: int
    linger_seconds: float
    def __init__(self, id: _Optional[str] = ..., data: _Optional[bytes] = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ..., offset: _Optional[int] = ..., tail: _Optional[int] = ..., linger_seconds: _Optional[float] = ...) -> None: ...

class TerminalOutput(_message.Message):
    __slots__ = ("data", "offset", "ended")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    ended: bool
    def __init__(self, data: _Optional[bytes] = ..., offset: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class NotificationsRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class Notifications(_message.Message):
    __slots__ = ("user", "urls", "signing_key", "allowed_hosts", "pending", "trouble")
    USER_FIELD_NUMBER: _ClassVar[int]
    URLS_FIELD_NUMBER: _ClassVar[int]
    SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_HOSTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    user: str
    urls: _containers.RepeatedScalarFieldContainer[str]
    signing_key: str
    allowed_hosts: _containers.RepeatedScalarFieldContainer[str]
    pending: int
    trouble: str
    def __init__(self, user: _Optional[str] = ..., urls: _Optional[_Iterable[str]] = ..., signing_key: _Optional[str] = ..., allowed_hosts: _Optional[_Iterable[str]] = ..., pending: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...

class NotificationTests(_message.Message):
    __slots__ = ("tests",)
    TESTS_FIELD_NUMBER: _ClassVar[int]
    tests: _containers.RepeatedCompositeFieldContainer[NotificationTest]
    def __init__(self, tests: _Optional[_Iterable[_Union[NotificationTest, _Mapping]]] = ...) -> None: ...

class NotificationTest(_message.Message):
    __slots__ = ("url", "status", "trouble")
    URL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    url: str
    status: int
    trouble: str
    def __init__(self, url: _Optional[str] = ..., status: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("id", "rank", "follow", "tail", "offset")
    ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    id: str
    rank: int
    follow: bool
    tail: int
    offset: int
    def __init__(self, id: _Optional[str] = ..., rank: _Optional[int] = ..., follow: _Optional[bool] = ..., tail: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("data", "offset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    def __init__(self, data: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class ClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerView(_message.Message):
    __slots__ = ("name", "agent", "type", "accelerators", "free", "state", "jobs", "last_heard", "since", "reason", "cpus", "free_cpus", "memory_bytes", "free_memory_bytes", "accelerator_memory_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARD_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    FREE_CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACCELERATOR_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    agent: str
    type: str
    accelerators: int
    free: int
    state: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    last_heard: float
    since: float
    reason: str
    cpus: float
    free_cpus: float
    memory_bytes: int
    free_memory_bytes: int
    accelerator_memory_bytes: int
    def __init__(self, name: _Optional[str] = ..., agent: _Optional[str] = ..., type: _Optional[str] = ..., accelerators: _Optional[int] = ..., free: _Optional[int] = ..., state: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ..., last_heard: _Optional[float] = ..., since: _Optional[float] = ..., reason: _Optional[str] = ..., cpus: _Optional[float] = ..., free_cpus: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., free_memory_bytes: _Optional[int] = ..., accelerator_memory_bytes: _Optional[int] = ...) -> None: ...

class TypeView(_message.Message):
    __slots__ = ("name", "accelerators", "busy", "price", "given_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    GIVEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    accelerators: int
    busy: int
    price: float
    given_seconds: float
    def __init__(self, name: _Optional[str] = ..., accelerators: _Optional[int] = ..., busy: _Optional[int] = ..., price: _Optional[float] = ..., given_seconds: _Optional[float] = ...) -> None: ...

class ClusterView(_message.Message):
    __slots__ = ("servers", "types", "policy", "objective", "round_seconds", "round_ends", "queued", "running", "time", "started", "version", "trouble", "ignored", "cluster", "term", "alarms")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    ROUND_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROUND_ENDS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    servers: _containers.RepeatedCompositeFieldContainer[ServerView]
    types: _containers.RepeatedCompositeFieldContainer[TypeView]
    policy: str
    objective: float
    round_seconds: float
    round_ends: float
    queued: int
    running: int
    time: float
    started: float
    version: str
    trouble: str
    ignored: _containers.RepeatedScalarFieldContainer[str]
    cluster: str
    term: int
    alarms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, servers: _Optional[_Iterable[_Union[ServerView, _Mapping]]] = ..., types: _Optional[_Iterable[_Union[TypeView, _Mapping]]] = ..., policy: _Optional[str] = ..., objective: _Optional[float] = ..., round_seconds: _Optional[float] = ..., round_ends: _Optional[float] = ..., queued: _Optional[int] = ..., running: _Optional[int] = ..., time: _Optional[float] = ..., started: _Optional[float] = ..., version: _Optional[str] = ..., trouble: _Optional[str] = ..., ignored: _Optional[_Iterable[str]] = ..., cluster: _Optional[str] = ..., term: _Optional[int] = ..., alarms: _Optional[_Iterable[str]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("agent", "now")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    agent: str
    now: bool
    def __init__(self, agent: _Optional[str] = ..., now: _Optional[bool] = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ("jobs", "state")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    state: str
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ...) -> None: ...

class RemoveCheckpointsRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckpointsView(_message.Message):
    __slots__ = ("job", "state", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    state: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RemoveCheckpointsReply(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[CheckpointsView]
    def __init__(self, jobs: _Optional[_Iterable[_Union[CheckpointsView, _Mapping]]] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("job", "server", "since", "follow", "limit", "routine", "after")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ROUTINE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job: str
    server: str
    since: float
    follow: bool
    limit: int
    routine: bool
    after: int
    def __init__(self, job: _Optional[str] = ..., server: _Optional[str] = ..., since: _Optional[float] = ..., follow: _Optional[bool] = ..., limit: _Optional[int] = ..., routine: _Optional[bool] = ..., after: _Optional[int] = ...) -> None: ...

class EventLine(_message.Message):
    __slots__ = ("number", "time", "kind", "text", "document")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    number: int
    time: float
    kind: str
    text: str
    document: str
    def __init__(self, number: _Optional[int] = ..., time: _Optional[float] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ..., document: _Optional[str] = ...) -> None: ...

class Accelerators(_message.Message):
    __slots__ = ("type", "count", "memory_bytes")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    type: str
    count: int
    memory_bytes: int
    def __init__(self, type: _Optional[str] = ..., count: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class TaskStatus(_message.Message):
    __slots__ = ("job", "attempt", "rank", "counts", "steps", "saved_steps", "measured_steps", "measured_seconds")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SAVED_STEPS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_STEPS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    rank: int
    counts: bool
    steps: float
    saved_steps: float
    measured_steps: float
    measured_seconds: float
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., counts: _Optional[bool] = ..., steps: _Optional[float] = ..., saved_steps: _Optional[float] = ..., measured_steps: _Optional[float] = ..., measured_seconds: _Optional[float] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "version", "name", "incarnation", "accelerators", "address", "tasks", "draining", "agent", "cluster", "term", "encrypts_gangs", "cpus", "memory_bytes", "abilities")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTS_GANGS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ABILITIES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    name: str
    incarnation: str
    accelerators: _containers.RepeatedCompositeFieldContainer[Accelerators]
    address: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    draining: bool
    agent: str
    cluster: str
    term: int
    encrypts_gangs: bool
    cpus: float
    memory_bytes: int
    abilities: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., name: _Optional[str] = ..., incarnation: _Optional[str] = ..., accelerators: _Optional[_Iterable[_Union[Accelerators, _Mapping]]] = ..., address: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., draining: _Optional[bool] = ..., agent: _Optional[str] = ..., cluster: _Optional[str] = ..., term: _Optional[int] = ..., encrypts_gangs: _Optional[bool] = ..., cpus: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., abilities: _Optional[_Iterable[str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ...) -> None: ...

class TaskStarted(_message.Message):
    __slots__ = ("job", "attempt", "rank", "master_address", "master_port", "gang_port", "gang_token", "gang_certificate")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    GANG_PORT_FIELD_NUMBER: _ClassVar[int]
    GANG_TOKEN_FIELD_NUMBER: _ClassVar[int]
    GANG_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    rank: int
    master_address: str
    master_port: int
    gang_port: int
    gang_token: str
    gang_certificate: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., master_address: _Optional[str] = ..., master_port: _Optional[int] = ..., gang_port: _Optional[int] = ..., gang_token: _Optional[str] = ..., gang_certificate: _Optional[str] = ...) -> None: ...

class TaskEnded(_message.Message):
    __slots__ = ("status", "how", "reason", "log_tail", "hopeless", "blameless", "exit_code")
    class How(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HOW_UNSPECIFIED: _ClassVar[TaskEnded.How]
        DONE: _ClassVar[TaskEnded.How]
        LEFT: _ClassVar[TaskEnded.How]
        CRASHED: _ClassVar[TaskEnded.How]
    HOW_UNSPECIFIED: TaskEnded.How
    DONE: TaskEnded.How
    LEFT: TaskEnded.How
    CRASHED: TaskEnded.How
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    HOPELESS_FIELD_NUMBER: _ClassVar[int]
    BLAMELESS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    status: TaskStatus
    how: TaskEnded.How
    reason: str
    log_tail: bytes
    hopeless: bool
    blameless: bool
    exit_code: int
    def __init__(self, status: _Optional[_Union[TaskStatus, _Mapping]] = ..., how: _Optional[_Union[TaskEnded.How, str]] = ..., reason: _Optional[str] = ..., log_tail: _Optional[bytes] = ..., hopeless: _Optional[bool] = ..., blameless: _Optional[bool] = ..., exit_code: _Optional[int] = ...) -> None: ...

class TaskLog(_message.Message):
    __slots__ = ("job", "attempt", "rank", "data", "begin")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    rank: int
    data: bytes
    begin: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., data: _Optional[bytes] = ..., begin: _Optional[int] = ...) -> None: ...

class CheckpointsHandled(_message.Message):
    __slots__ = ("through", "removed", "kept")
    class KeptEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    through: int
    removed: _containers.RepeatedScalarFieldContainer[str]
    kept: _containers.ScalarMap[str, str]
    def __init__(self, through: _Optional[int] = ..., removed: _Optional[_Iterable[str]] = ..., kept: _Optional[_Mapping[str, str]] = ...) -> None: ...

class FromAgent(_message.Message):
    __slots__ = ("hello", "heartbeat", "started", "ended", "log", "draining", "checkpoints", "number")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    started: TaskStarted
    ended: TaskEnded
    log: TaskLog
    draining: Draining
    checkpoints: CheckpointsHandled
    number: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., started: _Optional[_Union[TaskStarted, _Mapping]] = ..., ended: _Optional[_Union[TaskEnded, _Mapping]] = ..., log: _Optional[_Union[TaskLog, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., checkpoints: _Optional[_Union[CheckpointsHandled, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("heartbeat_seconds", "checkpoint_grace_seconds", "terminate_grace_seconds", "cluster")
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TERMINATE_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    heartbeat_seconds: float
    checkpoint_grace_seconds: float
    terminate_grace_seconds: float
    cluster: str
    def __init__(self, heartbeat_seconds: _Optional[float] = ..., checkpoint_grace_seconds: _Optional[float] = ..., terminate_grace_seconds: _Optional[float] = ..., cluster: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason", "retry")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    reason: str
    retry: bool
    def __init__(self, reason: _Optional[str] = ..., retry: _Optional[bool] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("job", "attempt", "first_rank", "ranks", "workers", "type", "request", "lease_seconds", "beside", "consolidated", "master_address", "master_port", "gang_port", "steps_done", "gang_token", "secrets", "gang_certificate", "plain_gang", "node", "nodes")
    class SecretsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_RANK_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    CONSOLIDATED_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    GANG_PORT_FIELD_NUMBER: _ClassVar[int]
    STEPS_DONE_FIELD_NUMBER: _ClassVar[int]
    GANG_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    GANG_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PLAIN_GANG_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    first_rank: int
    ranks: int
    workers: int
    type: str
    request: JobRequest
    lease_seconds: float
    beside: str
    consolidated: bool
    master_address: str
    master_port: int
    gang_port: int
    steps_done: float
    gang_token: str
    secrets: _containers.ScalarMap[str, str]
    gang_certificate: str
    plain_gang: bool
    node: int
    nodes: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., first_rank: _Optional[int] = ..., ranks: _Optional[int] = ..., workers: _Optional[int] = ..., type: _Optional[str] = ..., request: _Optional[_Union[JobRequest, _Mapping]] = ..., lease_seconds: _Optional[float] = ..., beside: _Optional[str] = ..., consolidated: _Optional[bool] = ..., master_address: _Optional[str] = ..., master_port: _Optional[int] = ..., gang_port: _Optional[int] = ..., steps_done: _Optional[float] = ..., gang_token: _Optional[str] = ..., secrets: _Optional[_Mapping[str, str]] = ..., gang_certificate: _Optional[str] = ..., plain_gang: _Optional[bool] = ..., node: _Optional[int] = ..., nodes: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("seconds", "jobs")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, seconds: _Optional[float] = ..., jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("job", "attempt", "reason", "at_once")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    reason: str
    at_once: bool
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., at_once: _Optional[bool] = ...) -> None: ...

class RemoveCheckpoints(_message.Message):
    __slots__ = ("removals",)
    class Removal(_message.Message):
        __slots__ = ("number", "job")
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        JOB_FIELD_NUMBER: _ClassVar[int]
        number: int
        job: str
        def __init__(self, number: _Optional[int] = ..., job: _Optional[str] = ...) -> None: ...
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    removals: _containers.RepeatedCompositeFieldContainer[RemoveCheckpoints.Removal]
    def __init__(self, removals: _Optional[_Iterable[_Union[RemoveCheckpoints.Removal, _Mapping]]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("job", "attempt", "data", "rows", "columns", "linger_seconds", "notice")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    LINGER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    data: bytes
    rows: int
    columns: int
    linger_seconds: float
    notice: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., data: _Optional[bytes] = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ..., linger_seconds: _Optional[float] = ..., notice: _Optional[str] = ...) -> None: ...

class ToAgent(_message.Message):
    __slots__ = ("welcome", "refused", "start", "lease", "stop", "ack", "remove_checkpoints", "input", "heard", "term")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    REMOVE_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    refused: Refused
    start: Start
    lease: Lease
    stop: Stop
    ack: Ack
    remove_checkpoints: RemoveCheckpoints
    input: Input
    heard: int
    term: int
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., remove_checkpoints: _Optional[_Union[RemoveCheckpoints, _Mapping]] = ..., input: _Optional[_Union[Input, _Mapping]] = ..., heard: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WhoAmIReply(_message.Message):
    __slots__ = ("user", "role", "teams", "leads", "by", "expires", "cluster")
    USER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEAMS_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    user: str
    role: str
    teams: _containers.RepeatedScalarFieldContainer[str]
    leads: _containers.RepeatedScalarFieldContainer[str]
    by: str
    expires: float
    cluster: str
    def __init__(self, user: _Optional[str] = ..., role: _Optional[str] = ..., teams: _Optional[_Iterable[str]] = ..., leads: _Optional[_Iterable[str]] = ..., by: _Optional[str] = ..., expires: _Optional[float] = ..., cluster: _Optional[str] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("name", "role", "teams", "leads", "disabled", "created")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEAMS_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    teams: _containers.RepeatedScalarFieldContainer[str]
    leads: _containers.RepeatedScalarFieldContainer[str]
    disabled: bool
    created: float
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., teams: _Optional[_Iterable[str]] = ..., leads: _Optional[_Iterable[str]] = ..., disabled: _Optional[bool] = ..., created: _Optional[float] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UserList(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[User]
    def __init__(self, users: _Optional[_Iterable[_Union[User, _Mapping]]] = ...) -> None: ...

class ChangeUserRequest(_message.Message):
    __slots__ = ("user", "fields")
    USER_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    user: User
    fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, user: _Optional[_Union[User, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("user", "name", "role", "seconds", "uses")
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    user: str
    name: str
    role: str
    seconds: float
    uses: int
    def __init__(self, user: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., seconds: _Optional[float] = ..., uses: _Optional[int] = ...) -> None: ...

class NewToken(_message.Message):
    __slots__ = ("token", "view", "address", "fingerprint")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    token: str
    view: TokenView
    address: str
    fingerprint: str
    def __init__(self, token: _Optional[str] = ..., view: _Optional[_Union[TokenView, _Mapping]] = ..., address: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class TokenView(_message.Message):
    __slots__ = ("id", "name", "user", "role", "created", "expires", "last_used", "last_address", "revoked", "uses_left")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    LAST_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    USES_LEFT_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    user: str
    role: str
    created: float
    expires: float
    last_used: float
    last_address: str
    revoked: bool
    uses_left: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., role: _Optional[str] = ..., created: _Optional[float] = ..., expires: _Optional[float] = ..., last_used: _Optional[float] = ..., last_address: _Optional[str] = ..., revoked: _Optional[bool] = ..., uses_left: _Optional[int] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class TokenList(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenView]
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenView, _Mapping]]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("join_token", "agent", "name", "signing_request")
    JOIN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    join_token: str
    agent: str
    name: str
    signing_request: str
    def __init__(self, join_token: _Optional[str] = ..., agent: _Optional[str] = ..., name: _Optional[str] = ..., signing_request: _Optional[str] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("signing_request",)
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    signing_request: str
    def __init__(self, signing_request: _Optional[str] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("certificate", "authority", "expires", "agents_port", "server_name")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    AGENTS_PORT_FIELD_NUMBER: _ClassVar[int]
    SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    certificate: str
    authority: str
    expires: float
    agents_port: int
    server_name: str
    def __init__(self, certificate: _Optional[str] = ..., authority: _Optional[str] = ..., expires: _Optional[float] = ..., agents_port: _Optional[int] = ..., server_name: _Optional[str] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EnrolledAgent(_message.Message):
    __slots__ = ("agent", "name", "enrolled", "expires", "revoked", "state", "by")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENROLLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    agent: str
    name: str
    enrolled: float
    expires: float
    revoked: bool
    state: str
    by: str
    def __init__(self, agent: _Optional[str] = ..., name: _Optional[str] = ..., enrolled: _Optional[float] = ..., expires: _Optional[float] = ..., revoked: _Optional[bool] = ..., state: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...

class AgentList(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[EnrolledAgent]
    def __init__(self, agents: _Optional[_Iterable[_Union[EnrolledAgent, _Mapping]]] = ...) -> None: ...

class RevokeAgentRequest(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: str
    def __init__(self, agent: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("unfinished_jobs", "running_accelerators", "submissions_per_minute")
    UNFINISHED_JOBS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    SUBMISSIONS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    unfinished_jobs: int
    running_accelerators: int
    submissions_per_minute: float
    def __init__(self, unfinished_jobs: _Optional[int] = ..., running_accelerators: _Optional[int] = ..., submissions_per_minute: _Optional[float] = ...) -> None: ...

class LimitsOf(_message.Message):
    __slots__ = ("kind", "name", "limits", "used")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    limits: Limits
    used: Limits
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., used: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class ListLimitsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LimitList(_message.Message):
    __slots__ = ("limits",)
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    limits: _containers.RepeatedCompositeFieldContainer[LimitsOf]
    def __init__(self, limits: _Optional[_Iterable[_Union[LimitsOf, _Mapping]]] = ...) -> None: ...

class AuditQuery(_message.Message):
    __slots__ = ("since", "user", "job", "limit")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    since: float
    user: str
    job: str
    limit: int
    def __init__(self, since: _Optional[float] = ..., user: _Optional[str] = ..., job: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class AuditLine(_message.Message):
    __slots__ = ("number", "time", "user", "role", "address", "method", "object", "what", "outcome")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    AS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    number: int
    time: float
    user: str
    role: str
    address: str
    method: str
    object: str
    what: str
    outcome: str
    def __init__(self, number: _Optional[int] = ..., time: _Optional[float] = ..., user: _Optional[str] = ..., role: _Optional[str] = ..., address: _Optional[str] = ..., method: _Optional[str] = ..., object: _Optional[str] = ..., what: _Optional[str] = ..., outcome: _Optional[str] = ..., **kwargs) -> None: ...
