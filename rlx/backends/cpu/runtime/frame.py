"""Word numbers of the structures that native code and Python share: frames and the thread pool."""

from __future__ import annotations

# A frame: the state of one call in progress. Kernels see its address as `slots`.
THREAD_STATE = 0  # the PyThreadState to restore before touching Python; 0 while the GIL is held
POOL = 1  # address of the thread pool
TABLE = 2  # first row of the plan
TABLE_END = 3
RELEASE = 4  # 1: the plan is long enough to run without the GIL
INPUTS = 5  # the number of slots that the second and the third argument of a call fill
OUTPUTS = 6
POINTER_NAME = 7  # the Python string "pointer"
COUNTDOWN = 8  # polls left until the clock is read
PERIOD = 9  # polls between two readings of the clock
CLOCK = 10  # its last reading
SIGNALS_CHECKED = 11  # when signals were last looked for
INTERRUPTIBLE = 12  # 1: the main thread runs this, without the GIL
STOPPED = 13  # 1: a signal handler raised, or the call was abandoned
FIRST_SLOT = 16

# A row of a table: [step function, length in words, fields of the step...].
STEP_HEAD = 2

# The thread pool. Words that different threads write are 64 bytes apart.
LOCK = 0  # 1 while a region is open
GENERATION = 8  # counts regions; idle workers wait for it to change
ACTIVE = 16  # workers inside the region, plus CLOSED while none may enter
SLEEPERS = 24
WAITING = 32  # 1 while the launcher sleeps until ACTIVE changes
TICKET = 40  # workers that asked to take part in the region
FUNCTION = 48  # the region: function(context, task) for each task
CONTEXT = 49
TASKS = 50
PARTICIPANTS = 51
THREADS = 56  # the most threads of a region, including its launcher
WORKERS = 57  # the number of started workers
STARTED = 58  # the number of workers that began to run
SPIN = 59  # nanoseconds that an idle worker spins before it sleeps
MAIN_THREAD = 60
SKIPPED = 61  # small regions run by their launcher alone because all workers slept
MUTEX = 64  # the pthread variant of sleeping
CONDITION = 80
NEXT = 96  # for each participant its next task
CLOSED = 1 << 32
MAXIMUM_THREADS = 256
POOL_WORDS = NEXT + 8 * MAXIMUM_THREADS
