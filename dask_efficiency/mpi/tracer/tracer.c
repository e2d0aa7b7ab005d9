/* Records the MPI calls of a program: preloaded into each rank, it writes what dask-efficiency simulates.
 *
 * Each rank's file has a line for a call, in the form of SimGrid's time-independent traces ("Replaying SMPI traces" in
 * its documentation), and before it what the program has computed since the last call. It departs from them in this:
 *   - "#comm NAME RANK RANK ..." names a communicator, and "@NAME" is the last word of calls on it;
 *   - a receive has the source, tag and size of the message that it got, also where it would have taken any;
 *   - calls on requests are written as the waits that they turned out to be;
 *   - a nonblocking collective is written as a blocking one where it is waited for;
 *   - the last comments count what was not traced and what ended in an error: a name and a number each.
 *
 * Only the thread that has initialised MPI is traced, so nothing here needs a lock. The calls of others are counted.
 * MPI is called for nothing that other ranks would have to take part in.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/syscall.h>
#endif

#ifdef WITH_ZLIB
#include <zlib.h>
#define SUFFIX ".txt.gz"
#else
#define SUFFIX ".txt"
#endif

/* Tests count what any machine can, and wait in less memory. */
#ifndef COUNTER_TYPE
#define COUNTER_TYPE PERF_TYPE_HARDWARE
#define COUNTER_CONFIG PERF_COUNT_HW_INSTRUCTIONS
#endif
/* Calls that wait in memory because the receive before them has got nothing yet: 2**20 are 64 MB. */
#ifndef MAX_RECORDS
#define MAX_RECORDS (1 << 20)
#define MIN_RECORDS (1 << 14)
#endif

/* Where the files go: a folder, and next to it a list of the files. */
#define FOLDER_VARIABLE "DASK_EFFICIENCY_MPI_TRACE"
#define DEFAULT_FOLDER "mpi-trace"

/* Text is compressed and written in pieces of this many bytes, each of which can be read without those after it. */
enum { MAX_PIECE = 1 << 18, MAX_LINE = 512, MAX_PATH = 4096, MAX_NAME = 48 };

/* Nanoseconds in which CPU time is taken for the time that has passed: a slice of the scheduler is 100 times longer. */
enum { MAX_GUESS = 20000 };

/* What SimGrid writes for MPI_ANY_SOURCE and MPI_ANY_TAG, whose numbers differ between implementations. */
enum { ANY_SOURCE = -555, ANY_TAG = -444 };

/* MPI_BYTE, which counts of derived datatypes are turned into. */
enum { BYTE = 6 };

typedef enum {
    NOTHING, GROUP, INIT, FINALIZE, SEND, SSEND, ISEND, ISSEND, RECV, IRECV, WAIT, WAITALL, BARRIER, BCAST, REDUCE,
    ALLREDUCE, SCAN, EXSCAN, GATHER, SCATTER, ALLGATHER, ALLTOALL, GATHERV, SCATTERV, ALLGATHERV, ALLTOALLV,
    REDUCE_SCATTER,
} Op;

static const char *const OP_NAMES[] = {
    [INIT] = "init",           [FINALIZE] = "finalize",     [SEND] = "send",           [SSEND] = "ssend",
    [ISEND] = "isend",         [ISSEND] = "issend",         [RECV] = "recv",           [IRECV] = "irecv",
    [WAIT] = "wait",           [WAITALL] = "waitall",       [BARRIER] = "barrier",     [BCAST] = "bcast",
    [REDUCE] = "reduce",       [ALLREDUCE] = "allreduce",   [SCAN] = "scan",           [EXSCAN] = "exscan",
    [GATHER] = "gather",       [SCATTER] = "scatter",       [ALLGATHER] = "allgather", [ALLTOALL] = "alltoall",
    [GATHERV] = "gatherv",     [SCATTERV] = "scatterv",     [ALLGATHERV] = "allgatherv",
    [ALLTOALLV] = "alltoallv", [REDUCE_SCATTER] = "reducescatter",
};

typedef struct group Group;
typedef struct request Request;

/* A line to be. */
typedef struct {
    uint64_t compute; /* before the call */
    int64_t count;    /* elements: of a message, or sent by a collective */
    int64_t received; /* elements received by a collective; the receiver of a wait */
    Group *group;     /* NULL where no name is to be written */
    char *text;       /* of groups and of collectives that have a count for each rank */
    int peer;         /* the other rank, the root or the sender of a wait */
    int tag;
    short type;
    short received_type;
    uint8_t op;
    bool pending; /* a receive that has got nothing yet */
} Record;

/* A communicator. */
struct group {
    Group *next;
    MPI_Comm comm;
    int *ranks; /* of the world: those that messages go to, so of an intercommunicator the others */
    int size;
    int rank;
    bool is_inter;
    bool is_ordered; /* named when it was made, which is at the same place of the order on all its ranks */
    char name[MAX_NAME];
    Request *first; /* nonblocking collectives that have not been written */
    Request *last;
};

/* What is known of a request of MPI, of a message that was probed for, or of a persistent request. */
struct request {
    Request *next;      /* of the same bucket; the oldest one first */
    Request *following; /* of the same communicator, if it is a collective */
    uint64_t key;
    enum { SENDING, RECEIVING, COLLECTIVE, PROBED, NULL_PEER } kind;
    Op op; /* of a send */
    bool is_buffered;
    bool is_persistent;
    bool is_active;
    bool is_written; /* a collective that has been */
    Group *group;
    int peer;
    int tag;
    int64_t count;
    MPI_Datatype type;
    uint64_t number;  /* of the record */
    Record collective;
};

typedef struct {
    const char *name;
    long times;
} Tally;

enum { MAX_TALLIES = 256, MAX_TYPES = 48, BUCKETS = 1 << 14, GROUP_BUCKETS = 256 };

/* Is anything recorded; of the thread that does. */
static atomic_bool is_on;
static _Thread_local bool is_traced_thread;
static bool is_inside; /* of a call: those that it makes itself are not the program's */
static atomic_long calls_of_others;
static pid_t process;
static int world_rank, world_size;
static MPI_Group world_group;

static struct {
    int descriptor;
    off_t complete; /* the file is whole up to here */
    char *text;
    size_t used;
    unsigned char *packed;
    size_t packed_size;
    char path[MAX_PATH];
} output;

static struct {
    Record *rows;
    size_t used;
    size_t size;
    uint64_t written; /* records that are no longer among the rows */
} records;

static struct {
    int counter;       /* a descriptor; -1 where time is taken */
    uint64_t last;     /* at the end of the last call: instructions, or nanoseconds of the wall clock */
    uint64_t overhead; /* of reading it: what an empty stretch of the program counts */
    uint64_t owed;     /* computed before the next record */
    uint64_t wall, cpu; /* nanoseconds, read together a short time before `last` */
    unsigned stretches;
    uint64_t sample_start; /* CPU time at the end of the last call, if this stretch is sampled */
    double sampled, sampled_nanoseconds;
} meter;

static Tally not_traced[MAX_TALLIES], errors[MAX_TALLIES], as_blocking[MAX_TALLIES];

/* ---- Numbers and words ------------------------------------------------------------------------------------------ */

/* printf would take longer than the call that is recorded. */
static char *put_number(char *to, int64_t number) {
    char digits[24];
    int n = 0;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    if (number < 0)
        *to++ = '-';
    do
        digits[n++] = (char)('0' + left % 10);
    while (left /= 10);
    while (n)
        *to++ = digits[--n];
    return to;
}

static char *put_word(char *to, int64_t number) {
    *to++ = ' ';
    return put_number(to, number);
}

static char *put_all(char *to, const int64_t *numbers, size_t n) {
    for (size_t i = 0; i < n; i++)
        to = put_word(to, numbers[i]);
    return to;
}
#define PUT(TO, ...) put_all(TO, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static char *put_text(char *to, const char *text) {
    size_t length = strlen(text);
    memcpy(to, text, length);
    return to + length;
}

static void tally(Tally *tallies, const char *name) {
    for (int i = 0; i < MAX_TALLIES; i++) {
        if (tallies[i].name == NULL)
            tallies[i].name = name;
        if (tallies[i].name == name) {
            tallies[i].times++;
            return;
        }
    }
}

/* ---- The file --------------------------------------------------------------------------------------------------- */

static int write_all(const void *bytes, size_t n) {
    const char *from = bytes;
    while (n > 0) {
        ssize_t written = write(output.descriptor, from, n);
        if (written < 0 && errno != EINTR)
            return errno;
        if (written > 0) {
            from += written;
            n -= (size_t)written;
        }
    }
    return 0;
}

/* Returns 0 or the error. */
static int write_piece(const char *text, size_t n) {
    if (n == 0)
        return 0;
    /* A file that grows beyond the limit of the shell would end the program. */
    sigset_t too_large, before;
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &too_large, &before);
#ifdef WITH_ZLIB
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)text, .avail_in = (uInt)n};
    int error = ENOMEM;
    /* 31: as gzip does. Its lowest level takes a third of the time of the usual one. */
    if (deflateInit2(&stream, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK) {
        stream.next_out = output.packed;
        stream.avail_out = (uInt)output.packed_size;
        if (deflate(&stream, Z_FINISH) == Z_STREAM_END)
            error = write_all(output.packed, stream.total_out);
        deflateEnd(&stream);
    }
#else
    int error = write_all(text, n);
#endif
    if (error == EFBIG)
        sigtimedwait(&too_large, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        output.complete = lseek(output.descriptor, 0, SEEK_CUR);
    return error;
}

/* Gives up: says so once, and as the last line of the file, where that has any room. */
static void stop(const char *reason) {
    if (!atomic_exchange(&is_on, false))
        return;
    fprintf(stderr, "dask-efficiency: rank %d is not traced any more: %s: %s\n", world_rank, output.path, reason);
    char line[MAX_LINE];
    int length = snprintf(line, sizeof line, "# stopped: %s\n", reason);
    if (ftruncate(output.descriptor, output.complete) == 0)
        lseek(output.descriptor, output.complete, SEEK_SET);
    write_piece(line, (size_t)length);
    close(output.descriptor);
}

static void write_text(void) {
    size_t n = output.used;
    output.used = 0;
    /* Once it has stopped, the descriptor may be that of a file of the program's. */
    int error = atomic_load(&is_on) ? write_piece(output.text, n) : 0;
    if (error)
        stop(strerror(error));
}

/* Room for so many more bytes. */
static char *room(size_t n) {
    if (output.used + n > MAX_PIECE)
        write_text();
    return output.text + output.used;
}

static void say(const char *text) {
    size_t n = strlen(text);
    for (size_t done = 0; done < n;) {
        size_t part = n - done < MAX_PIECE / 2 ? n - done : MAX_PIECE / 2;
        memcpy(room(part), text + done, part);
        output.used += part;
        done += part;
    }
}

/* ---- Records ---------------------------------------------------------------------------------------------------- */

static char *put_words(char *to, const Record *of) {
    switch (of->op) {
    case SEND: case SSEND: case ISEND: case ISSEND: case RECV: case IRECV:
        return PUT(to, of->peer, of->tag, of->count, of->type);
    case WAIT:
        return PUT(to, of->peer, of->received, of->tag);
    case WAITALL:
        return PUT(to, of->count);
    case BCAST:
        return PUT(to, of->count, of->peer, of->type);
    case REDUCE: /* the 0 is what is computed: the program computes nothing meanwhile */
        return PUT(to, of->count, 0, of->peer, of->type);
    case ALLREDUCE: case SCAN: case EXSCAN:
        return PUT(to, of->count, 0, of->type);
    case GATHER: case SCATTER:
        return PUT(to, of->count, of->received, of->peer, of->type, of->received_type);
    case ALLGATHER: case ALLTOALL:
        return PUT(to, of->count, of->received, of->type, of->received_type);
    default:
        return to;
    }
}

static void put_record(const Record *record) {
    char *to = room(MAX_LINE);
    if (record->compute) {
        to = put_text(put_number(to, world_rank), " compute");
        to = put_text(put_word(to, (int64_t)record->compute), "\n");
        output.used = (size_t)(to - output.text);
    }
    if (record->op == NOTHING)
        return;
    if (record->op != GROUP) {
        to = put_text(put_number(to, world_rank), " ");
        to = put_words(put_text(to, OP_NAMES[record->op]), record);
        output.used = (size_t)(to - output.text);
    }
    if (record->text)
        say(record->text);
    to = room(MAX_LINE);
    if (record->group && record->group->name[0])
        to = put_text(put_text(to, " @"), record->group->name);
    *to++ = '\n';
    output.used = (size_t)(to - output.text);
}

/* Writes the records that are known, in their order; the first `forced` ones also if they are not. */
static void write_records(size_t forced) {
    size_t n = 0;
    for (; n < records.used && (n < forced || !records.rows[n].pending); n++) {
        put_record(&records.rows[n]);
        free(records.rows[n].text);
    }
    memmove(records.rows, records.rows + n, (records.used - n) * sizeof(Record));
    records.used -= n;
    records.written += n;
}

static void make_room(void) {
    write_records(0);
    if (records.used < records.size / 2)
        return;
    Record *more = records.size < MAX_RECORDS ? realloc(records.rows, 2 * records.size * sizeof(Record)) : NULL;
    if (more) {
        records.rows = more;
        records.size *= 2;
    } else {
        write_records(records.size / 2);
    }
}

static Record *add(Op op) {
    if (records.used == records.size)
        make_room();
    Record *record = &records.rows[records.used++];
    *record = (Record){.op = (uint8_t)op, .compute = meter.owed};
    meter.owed = 0;
    return record;
}

/* A record that has not been written yet, or NULL. */
static Record *record_at(uint64_t number) {
    return number < records.written ? NULL : &records.rows[number - records.written];
}

/* ---- What the program computes ---------------------------------------------------------------------------------- */

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void read_cpu_time(void) {
    meter.cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    meter.wall = nanoseconds(CLOCK_MONOTONIC);
}

static uint64_t instructions(void) {
    uint64_t count = 0;
    return read(meter.counter, &count, sizeof count) == sizeof count ? count : meter.last;
}

/* The program goes on. */
static void start_meter(void) {
    if (meter.counter >= 0) {
        /* How many make a second is measured in every sixteenth stretch once it is known, as it costs another reading. */
        bool is_sampled = meter.sampled_nanoseconds == 0 || meter.stretches++ % 16 == 0;
        meter.sample_start = is_sampled ? nanoseconds(CLOCK_THREAD_CPUTIME_ID) : 0;
        meter.last = instructions();
        return;
    }
    meter.last = nanoseconds(CLOCK_MONOTONIC);
    if (meter.last - meter.wall > MAX_GUESS) {
        read_cpu_time();
        meter.last = meter.wall;
    }
}

/* CPU time since the end of the last call. Reading it enters the kernel, and the wall clock does not: in times as short
 * as MAX_GUESS a thread that runs at both ends has run all the time. */
static uint64_t cpu_time_since(void) {
    uint64_t passed = nanoseconds(CLOCK_MONOTONIC) - meter.last;
    if (passed <= MAX_GUESS)
        return passed;
    uint64_t before = meter.cpu + (meter.last - meter.wall);
    read_cpu_time();
    uint64_t used = meter.cpu > before ? meter.cpu - before : 0;
    return used < passed ? used : passed;
}

/* The program calls. */
static void stop_meter(void) {
    uint64_t more = meter.counter >= 0 ? instructions() - meter.last : cpu_time_since();
    if (more <= meter.overhead)
        return;
    meter.owed += more - meter.overhead;
    uint64_t sampled = meter.sample_start ? nanoseconds(CLOCK_THREAD_CPUTIME_ID) - meter.sample_start : 0;
    /* In shorter ones the readings themselves would count. */
    if (sampled > MAX_GUESS) {
        meter.sampled += (double)more;
        meter.sampled_nanoseconds += (double)sampled;
    }
}

static int open_counter(void) {
#ifdef __linux__
    struct perf_event_attr wanted = {
        .size = sizeof wanted, .type = COUNTER_TYPE, .config = COUNTER_CONFIG, .exclude_kernel = 1, .exclude_hv = 1};
    int descriptor = (int)syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    uint64_t count;
    if (descriptor >= 0 && read(descriptor, &count, sizeof count) == sizeof count)
        return descriptor;
    if (descriptor >= 0)
        close(descriptor);
#endif
    return -1;
}

static void set_meter(void) {
    meter.counter = open_counter();
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        start_meter();
        stop_meter();
        least = meter.owed < least ? meter.owed : least;
        meter.owed = 0;
    }
    meter.overhead = least;
    meter.sampled = meter.sampled_nanoseconds = 0;
}

/* ---- Datatypes -------------------------------------------------------------------------------------------------- */

static struct {
    MPI_Datatype type;
    short number;
} types[MAX_TYPES];
static int types_used;

/* The numbers are those of SimGrid's list of predefined datatypes (src/smpi/mpi/smpi_datatype.cpp of 3.32). Fortran's
 * types are not there where MPI was built without it. */
static void know_types(void) {
    const struct {
        MPI_Datatype type;
        short number;
        int size;
    } known[] = {
        {MPI_DOUBLE, 0, 8}, {MPI_INT, 1, 4}, {MPI_BYTE, BYTE, 1}, {MPI_CHAR, 2, 1}, {MPI_FLOAT, 5, 4},
        {MPI_DOUBLE_PRECISION, 0, 8}, {MPI_REAL, 5, 4}, {MPI_INTEGER, 1, 4}, {MPI_SHORT, 3, 2}, {MPI_LONG, 4, 8},
        {MPI_LONG_LONG, 7, 8}, {MPI_SIGNED_CHAR, 8, 1}, {MPI_UNSIGNED_CHAR, 9, 1}, {MPI_UNSIGNED_SHORT, 10, 2},
        {MPI_UNSIGNED, 11, 4}, {MPI_UNSIGNED_LONG, 12, 8}, {MPI_UNSIGNED_LONG_LONG, 13, 8}, {MPI_LONG_DOUBLE, 14, 16},
        {MPI_WCHAR, 15, 4}, {MPI_C_BOOL, 16, 1}, {MPI_INT8_T, 17, 1}, {MPI_INT16_T, 18, 2}, {MPI_INT32_T, 19, 4},
        {MPI_INT64_T, 20, 8}, {MPI_UINT8_T, 21, 1}, {MPI_UINT16_T, 22, 2}, {MPI_UINT32_T, 23, 4}, {MPI_UINT64_T, 24, 8},
        {MPI_C_FLOAT_COMPLEX, 25, 8}, {MPI_C_DOUBLE_COMPLEX, 26, 16}, {MPI_C_LONG_DOUBLE_COMPLEX, 27, 32},
        {MPI_COMPLEX, 25, 8}, {MPI_DOUBLE_COMPLEX, 26, 16}, {MPI_AINT, 28, 8}, {MPI_OFFSET, 29, 8},
        {MPI_PACKED, BYTE, 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int size = 0;
        if (known[i].type == MPI_DATATYPE_NULL || PMPI_Type_size(known[i].type, &size) != MPI_SUCCESS)
            continue;
        if (size == known[i].size) {
            types[types_used].type = known[i].type;
            types[types_used++].number = known[i].number;
        }
    }
}

/* What an element is written as: so many of a predefined datatype. */
typedef struct {
    short number;
    int64_t scale;
} Element;

static Element element_of(MPI_Datatype type) {
    for (int i = 0; i < types_used; i++)
        if (types[i].type == type)
            return (Element){types[i].number, 1};
    MPI_Count size = 0;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size < 0)
        size = 0;
    return (Element){BYTE, (int64_t)size};
}

static void set_count(Record *record, int64_t count, MPI_Datatype type) {
    Element element = element_of(type);
    record->count = count * element.scale;
    record->type = element.number;
}

/* The elements that a message had. */
static void set_received(Record *record, const MPI_Status *status, MPI_Datatype type) {
    MPI_Count nbytes = 0;
    int size = 1;
    if (PMPI_Get_elements_x(status, MPI_BYTE, &nbytes) != MPI_SUCCESS || nbytes < 0)
        return;
    Element element = element_of(type);
    if (element.scale == 1 && element.number != BYTE)
        PMPI_Type_size(type, &size);
    bool is_whole = nbytes % size == 0;
    record->count = (int64_t)(is_whole ? nbytes / size : nbytes);
    record->type = is_whole ? element.number : BYTE;
}

/* ---- Communicators ---------------------------------------------------------------------------------------------- */

static Group *groups[GROUP_BUCKETS];

/* How many communicators of the same ranks there have been. */
typedef struct occurrences {
    struct occurrences *next;
    uint64_t hash;
    unsigned times;
} Occurrences;
static Occurrences *occurrences[GROUP_BUCKETS];

static uint64_t mixed(uint64_t key) {
    key *= 0x9E3779B97F4A7C15u;
    return key ^ (key >> 32);
}

/* Handles are numbers in some implementations and pointers in others. */
#define KEY_OF(TYPE, NAME)                      \
    static uint64_t NAME(TYPE handle) {         \
        uint64_t key = 0;                       \
        memcpy(&key, &handle, sizeof handle);   \
        return key;                             \
    }
KEY_OF(MPI_Comm, key_of_comm)
KEY_OF(MPI_Request, key_of)
KEY_OF(MPI_Message, key_of_message)

static Group **bucket_of(MPI_Comm comm) {
    uint64_t key = key_of_comm(comm);
    return &groups[mixed(key) % GROUP_BUCKETS];
}

/* Communicators are made in the same order on all their ranks, so that each can count those of the same ranks: a name
 * that all of them have needs no messages. */
static void name_group(Group *group) {
    uint64_t hash = (uint64_t)group->size;
    for (int i = 0; i < group->size; i++)
        hash = mixed(hash ^ (uint64_t)(unsigned)group->ranks[i]);
    Occurrences **at = &occurrences[hash % GROUP_BUCKETS];
    while (*at && (*at)->hash != hash)
        at = &(*at)->next;
    if (*at == NULL && (*at = calloc(1, sizeof **at)) != NULL)
        (*at)->hash = hash;
    unsigned times = *at ? (*at)->times++ : 0;
    snprintf(group->name, sizeof group->name, "%d.%d.%012llx.%u", group->ranks[0], group->size,
             (unsigned long long)(hash >> 16), times);
    char *text = malloc(MAX_NAME + 16 + 12 * (size_t)group->size);
    if (text == NULL) {
        stop("out of memory");
        return;
    }
    char *to = put_text(put_text(text, "#comm "), group->name);
    for (int i = 0; i < group->size; i++)
        to = put_word(to, group->ranks[i]);
    *to = '\0';
    add(GROUP)->text = text;
}

static Group *make_group(MPI_Comm comm) {
    Group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    int is_inter = 0;
    MPI_Group members = MPI_GROUP_NULL;
    PMPI_Comm_test_inter(comm, &is_inter);
    PMPI_Comm_rank(comm, &group->rank);
    if (is_inter)
        PMPI_Comm_remote_group(comm, &members);
    else
        PMPI_Comm_group(comm, &members);
    PMPI_Group_size(members, &group->size);
    int *numbers = malloc(((size_t)group->size + 1) * sizeof(int));
    group->ranks = malloc(((size_t)group->size + 1) * sizeof(int));
    if (numbers && group->ranks) {
        for (int i = 0; i < group->size; i++)
            numbers[i] = i;
        PMPI_Group_translate_ranks(members, group->size, numbers, world_group, group->ranks);
    } else {
        group->size = 0;
    }
    free(numbers);
    PMPI_Group_free(&members);
    group->comm = comm;
    group->is_inter = is_inter;
    Group **bucket = bucket_of(comm);
    group->next = *bucket;
    *bucket = group;
    return group;
}

static Group *group_of(MPI_Comm comm) {
    Group *group = *bucket_of(comm);
    while (group && group->comm != comm)
        group = group->next;
    if (group == NULL && (group = make_group(comm)) == NULL)
        stop("out of memory");
    return group;
}

/* The handle may come back as that of another communicator. The group stays, as records and requests know it. */
static void forget_group(MPI_Comm comm) {
    Group **at = bucket_of(comm);
    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    if (*at)
        *at = (*at)->next;
}

static void communicator_made(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL)
        return;
    forget_group(comm);
    Group *group = group_of(comm);
    if (group && !group->is_inter && group->size) {
        group->is_ordered = true;
        name_group(group);
    }
}

/* The rank of the world, or -1 if it is not of this world. */
static int peer_of(const Group *group, int rank) {
    return rank >= 0 && rank < group->size && group->ranks[rank] >= 0 ? group->ranks[rank] : -1;
}

/* ---- Requests --------------------------------------------------------------------------------------------------- */

static struct {
    Request *first;
    Request *last;
} buckets[BUCKETS];
static Request *unused;
static long open_messages; /* sends and receives that have been begun and not waited for */
static bool has_loose_messages; /* some that are never waited for: then no wait is one for all */

/* The oldest one: implementations have one handle for all sends that are done at once. */
static Request *find_key(uint64_t key) {
    Request *request = buckets[mixed(key) % BUCKETS].first;
    while (request && request->key != key)
        request = request->next;
    return request;
}

static Request *new_request(uint64_t key) {
    Request *request = unused;
    if (request)
        unused = request->next;
    else if ((request = malloc(sizeof *request)) == NULL) {
        stop("out of memory");
        return NULL;
    }
    *request = (Request){.key = key};
    Request **first = &buckets[mixed(key) % BUCKETS].first, **last = &buckets[mixed(key) % BUCKETS].last;
    if (*first)
        (*last)->next = request;
    else
        *first = request;
    *last = request;
    return request;
}

static void forget_request(Request *request) {
    Request **first = &buckets[mixed(request->key) % BUCKETS].first;
    Request *before = NULL;
    for (Request *one = *first; one != request; one = one->next)
        before = one;
    if (before)
        before->next = request->next;
    else
        *first = request->next;
    if (request->next == NULL)
        buckets[mixed(request->key) % BUCKETS].last = before;
    request->next = unused;
    unused = request;
}

/* The name of a communicator is written on messages only where all its ranks have it. */
static Group *named(Group *group) {
    return group->is_ordered ? group : NULL;
}

/* Records that a send or receive has begun, which a request stands for. */
static void begin(Request *request) {
    request->is_active = true;
    if (request->kind == NULL_PEER)
        return;
    Record *record = add(request->kind == SENDING ? request->op : IRECV);
    record->peer = request->peer;
    record->tag = request->tag;
    record->group = named(request->group);
    record->pending = request->kind == RECEIVING;
    set_count(record, request->count, request->type);
    request->number = records.written + records.used - 1;
    if (request->is_buffered)
        has_loose_messages = true; /* its wait is over when the message is copied */
    else
        open_messages++;
}

static void know_request(Request *request, Group *group, int peer, int tag, int64_t count, MPI_Datatype type) {
    request->group = group;
    request->peer = peer == MPI_ANY_SOURCE ? ANY_SOURCE : peer_of(group, peer);
    request->tag = tag == MPI_ANY_TAG ? ANY_TAG : tag;
    request->count = count;
    request->type = type;
    if (peer == MPI_PROC_NULL)
        request->kind = NULL_PEER;
    else if (request->peer == -1) {
        tally(not_traced, "messages-to-other-worlds");
        request->kind = NULL_PEER;
    }
}

/* What a receive has got; false if it was cancelled. */
static bool received(Record *record, Group *group, const MPI_Status *status, MPI_Datatype type) {
    int is_cancelled = 0;
    PMPI_Test_cancelled(status, &is_cancelled);
    if (is_cancelled) {
        record->op = NOTHING;
        return false;
    }
    record->peer = peer_of(group, status->MPI_SOURCE);
    record->tag = status->MPI_TAG;
    set_received(record, status, type);
    return true;
}

static void write_collectives(Group *group, const Request *last);

/* A wait for a message. */
typedef struct {
    int source, destination, tag;
} Wait;

/* Writes down what a request has turned out to be; false if there is no wait for a message to be recorded. */
static bool finish(Request *request, const MPI_Status *status, Wait *wait) {
    bool is_waited = (request->kind == SENDING && !request->is_buffered) || request->kind == RECEIVING;
    if (!request->is_active)
        return false;
    request->is_active = false;
    if (request->kind == COLLECTIVE && !request->is_written)
        write_collectives(request->group, request);
    open_messages -= is_waited;
    *wait = (Wait){world_rank, request->peer, request->tag};
    if (request->kind == RECEIVING) {
        *wait = (Wait){request->peer, world_rank, request->tag};
        Record *record = record_at(request->number);
        if (record) {
            record->pending = false;
            is_waited = received(record, request->group, status, request->type);
            *wait = (Wait){record->peer, world_rank, record->tag};
        }
    }
    if (!request->is_persistent)
        forget_request(request);
    return is_waited;
}

static void add_wait(Wait wait) {
    Record *record = add(WAIT);
    record->peer = wait.source;
    record->received = wait.destination;
    record->tag = wait.tag;
}

static void done(uint64_t key, const MPI_Status *status) {
    Request *request = find_key(key);
    Wait wait;
    if (request && finish(request, status, &wait))
        add_wait(wait);
}

/* Copies of an array of handles, as MPI clears it, and statuses where the program wants none. */
static uint64_t *keys;
static MPI_Status *own_statuses;
static Wait *waits;
static int keys_size;

static bool copy_requests(int n, const MPI_Request *requests) {
    if (n > keys_size) {
        free(keys);
        free(own_statuses);
        free(waits);
        keys = malloc((size_t)n * sizeof *keys);
        own_statuses = malloc((size_t)n * sizeof *own_statuses);
        waits = malloc((size_t)n * sizeof *waits);
        keys_size = keys && own_statuses && waits ? n : 0;
        if (!keys_size) {
            stop("out of memory");
            return false;
        }
    }
    for (int i = 0; i < n; i++)
        keys[i] = key_of(requests[i]);
    return true;
}

/* Several at once: where nothing is left to wait for, they are one wait for all. */
static void all_done(int n, const MPI_Status *statuses, bool is_error) {
    int used = 0;
    for (int i = 0; i < n; i++) {
        Request *request = is_error && statuses[i].MPI_ERROR == MPI_ERR_PENDING ? NULL : find_key(keys[i]);
        if (request)
            used += finish(request, &statuses[i], &waits[used]);
    }
    if (used > 1 && open_messages == 0 && !has_loose_messages) {
        add(WAITALL)->count = used;
        return;
    }
    for (int i = 0; i < used; i++)
        add_wait(waits[i]);
}

/* ---- Collectives ------------------------------------------------------------------------------------------------ */

static void write_collective(Group *group, const Record *collective) {
    if (group->comm != MPI_COMM_WORLD && group->name[0] == '\0')
        name_group(group);
    Record *record = add((Op)collective->op);
    uint64_t compute = record->compute;
    *record = *collective;
    record->compute = compute;
    record->group = group;
}

/* Nonblocking collectives are written in the order in which they were begun, as that is the same on all ranks: up to
 * this one, or all of them before a blocking one. */
static void write_collectives(Group *group, const Request *last) {
    while (group->first) {
        Request *request = group->first;
        group->first = request->following;
        request->is_written = true;
        write_collective(group, &request->collective);
        if (request == last)
            return;
    }
}

static void blocking(Group *group, Record record) {
    write_collectives(group, NULL);
    write_collective(group, &record);
}

static void nonblocking(Group *group, Record record, uint64_t key) {
    Request *request = new_request(key);
    if (request == NULL)
        return;
    request->kind = COLLECTIVE;
    request->is_active = true;
    request->group = group;
    request->collective = record;
    if (group->first)
        group->last->following = request;
    else
        group->first = request;
    group->last = request;
}

/* The communicator of a collective, NULL if it cannot be written. */
static Group *group_for(MPI_Comm comm, const char *name) {
    Group *group = group_of(comm);
    if (group && !group->is_inter)
        return group;
    tally(not_traced, name);
    return NULL;
}

static Record simple(Op op, int root, int64_t count, MPI_Datatype type) {
    Record record = {.op = (uint8_t)op, .peer = root};
    set_count(&record, count, type);
    return record;
}

/* What one rank sends and receives; what MPI does not look at is as the other. */
static Record both(Op op, int root, bool has_sent, int64_t count, MPI_Datatype type, bool has_received,
                   int64_t received_count, MPI_Datatype received_type) {
    Record record = {.op = (uint8_t)op, .peer = root};
    Record there = {0};
    set_count(&record, has_sent ? count : received_count, has_sent ? type : received_type);
    set_count(&there, has_received ? received_count : count, has_received ? received_type : type);
    record.received = there.count;
    record.received_type = there.type;
    return record;
}

/* Counts of each rank, as int or MPI_Count; NULL where MPI does not look at them. */
typedef struct {
    const void *counts;
    size_t width;
    Element element;
} Counts;

static Counts counts_of(const void *counts, size_t width, MPI_Datatype type, bool is_significant) {
    return is_significant ? (Counts){counts, width, element_of(type)} : (Counts){NULL, width, {BYTE, 0}};
}

static int64_t count_at(Counts of, int i) {
    if (of.counts == NULL)
        return 0;
    bool is_int = of.width == sizeof(int);
    return of.element.scale * (is_int ? ((const int *)of.counts)[i] : (int64_t)((const MPI_Count *)of.counts)[i]);
}

static char *put_counts(char *to, const Group *group, Counts of) {
    for (int i = 0; i < group->size; i++)
        to = put_word(to, count_at(of, i));
    return to;
}

static char *put_sum_and_counts(char *to, const Group *group, Counts of) {
    int64_t sum = 0;
    for (int i = 0; i < group->size; i++)
        sum += count_at(of, i);
    return put_counts(put_word(to, sum), group, of);
}

static Record with_text(Op op, const Group *group, char **to, int vectors) {
    Record record = {.op = (uint8_t)op};
    record.text = *to = malloc(((size_t)group->size * (size_t)vectors + 8) * 21);
    if (record.text == NULL)
        stop("out of memory");
    return record;
}

static Record gathered(Op op, const Group *group, int root, bool has_sent, int64_t count, MPI_Datatype type,
                       Counts counts) {
    char *to;
    Record record = with_text(op, group, &to, 1);
    if (to == NULL)
        return record;
    Element element = has_sent ? element_of(type) : counts.element;
    /* In place, this rank's part is already there. The root of a gatherv then says 0, and of an allgatherv its own. */
    int64_t in_place = op == ALLGATHERV ? count_at(counts, group->rank) : 0;
    to = put_counts(put_word(to, has_sent ? count * element.scale : in_place), group, counts);
    if (op == GATHERV)
        to = put_word(to, root);
    *PUT(to, element.number, counts.element.number) = '\0';
    return record;
}

static Record scattered(const Group *group, int root, Counts counts, bool has_received, int64_t count,
                        MPI_Datatype type) {
    char *to;
    Record record = with_text(SCATTERV, group, &to, 1);
    if (to == NULL)
        return record;
    Element element = has_received ? element_of(type) : counts.element;
    to = put_word(put_counts(to, group, counts), has_received ? count * element.scale : 0);
    *PUT(to, root, counts.element.number, element.number) = '\0';
    return record;
}

static Record exchanged(const Group *group, bool has_sent, Counts sent, Counts got) {
    char *to;
    Record record = with_text(ALLTOALLV, group, &to, 2);
    if (to == NULL)
        return record;
    if (!has_sent)
        sent = got;
    to = put_sum_and_counts(put_sum_and_counts(to, group, sent), group, got);
    *PUT(to, sent.element.number, got.element.number) = '\0';
    return record;
}

/* Each rank gets its count, or all the same one. */
static Record reduce_scattered(const Group *group, Counts counts, int64_t count) {
    char *to;
    Record record = with_text(REDUCE_SCATTER, group, &to, 1);
    if (to == NULL)
        return record;
    for (int i = 0; i < group->size; i++)
        to = put_word(to, counts.counts ? count_at(counts, i) : counts.element.scale * count);
    *PUT(to, 0, counts.element.number) = '\0';
    return record;
}

/* ---- Begin and end ---------------------------------------------------------------------------------------------- */

static void say_tallies(const char *what, const Tally *tallies) {
    char line[MAX_LINE];
    for (int i = 0; i < MAX_TALLIES && tallies[i].name; i++) {
        snprintf(line, sizeof line, "# %s: %s %ld\n", what, tallies[i].name, tallies[i].times);
        say(line);
    }
}

/* Writes the rest; at the end of MPI or of the process, whichever is first. */
static void end(void) {
    /* A child of the process has a copy of what its parent will write. */
    if (!atomic_load(&is_on) || getpid() != process)
        return;
    write_records(records.used);
    if (meter.sampled_nanoseconds > 0) {
        char line[MAX_LINE];
        snprintf(line, sizeof line, "# instructions_per_second=%.6g\n", 1e9 * meter.sampled / meter.sampled_nanoseconds);
        say(line);
    }
    say_tallies("not traced", not_traced);
    say_tallies("errors", errors);
    say_tallies("as blocking where waited for", as_blocking);
    Tally others[2] = {{"calls-of-other-threads", atomic_load(&calls_of_others)}};
    if (others[0].times)
        say_tallies("not traced", others);
    Tally left[2] = {{"requests", open_messages}};
    if (open_messages)
        say_tallies("not waited for", left);
    write_text();
    if (atomic_exchange(&is_on, false) && close(output.descriptor) != 0)
        fprintf(stderr, "dask-efficiency: rank %d: %s: %s\n", world_rank, output.path, strerror(errno));
}

/* A file of its own in the place of any that is there: that may be a link to what is not to be written to. */
static int make_file(const char *path) {
    if (unlink(path) != 0 && errno != ENOENT)
        return -1;
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

/* The folder with all above it; not by a link that is another user's. */
static int make_folder(const char *folder) {
    char path[MAX_PATH];
    struct stat found;
    if (lstat(folder, &found) == 0 && S_ISLNK(found.st_mode) && found.st_uid != geteuid()) {
        errno = ELOOP;
        return -1;
    }
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        mkdir(path, 0777); /* what is wrong with it, the last one says */
        *at = '/';
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -1;
}

/* Rank 0 lists the files, and removes those of an earlier run of more ranks. */
static int write_list(const char *folder) {
    char path[MAX_PATH + 64];
    const char *slash = strrchr(folder, '/');
    snprintf(path, sizeof path, "%s.txt", folder);
    int descriptor = make_file(path);
    FILE *list = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (list == NULL)
        return -1;
    for (int rank = 0; rank < world_size; rank++)
        fprintf(list, "%s/rank-%d" SUFFIX "\n", slash ? slash + 1 : folder, rank);
    for (int rank = world_size;; rank++) {
        snprintf(path, sizeof path, "%s/rank-%d" SUFFIX, folder, rank);
        if (unlink(path) != 0)
            break;
    }
    return fclose(list);
}

static bool open_output(void) {
    char folder[MAX_PATH - 64];
    const char *wanted = getenv(FOLDER_VARIABLE);
    snprintf(folder, sizeof folder, "%s", wanted && *wanted ? wanted : DEFAULT_FOLDER);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = '\0';
    snprintf(output.path, sizeof output.path, "%s/rank-%d" SUFFIX, folder, world_rank);
    output.text = malloc(MAX_PIECE);
    records.rows = malloc(MIN_RECORDS * sizeof(Record));
    records.size = MIN_RECORDS;
    output.packed_size = MAX_PIECE + MAX_PIECE / 1000 + 1024; /* zlib: 0.1 % more and 12 bytes at most, and the frame */
#ifdef WITH_ZLIB
    output.packed = malloc(output.packed_size);
    if (output.packed == NULL)
        return false;
#endif
    if (output.text == NULL || records.rows == NULL || make_folder(folder) != 0)
        return false;
    if (world_rank == 0 && write_list(folder) != 0)
        return false;
    output.descriptor = make_file(output.path);
    return output.descriptor >= 0;
}

/* MPI has been initialised. */
static void begin_trace(void) {
    MPI_Comm parent = MPI_COMM_NULL;
    PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    PMPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        if (world_rank == 0)
            fprintf(stderr, "dask-efficiency: programs that others have spawned are not traced\n");
        return;
    }
    PMPI_Comm_group(MPI_COMM_WORLD, &world_group);
    errno = 0;
    if (!open_output()) {
        fprintf(stderr, "dask-efficiency: rank %d is not traced: %s: %s\n", world_rank, output.path, strerror(errno));
        return;
    }
    process = getpid();
    know_types();
    set_meter();
    is_traced_thread = true;
    atomic_store(&is_on, true);
    say(meter.counter >= 0 ? "# dask-efficiency mpi trace 1 communicators\n"
                           : "# dask-efficiency mpi trace 1 communicators instructions_per_second=1e9\n");
    add(INIT);
    atexit(end);
    start_meter();
}

/* Whether a call is recorded. */
static bool enter(void) {
    if (!atomic_load_explicit(&is_on, memory_order_relaxed))
        return false;
    if (!is_traced_thread) {
        atomic_fetch_add(&calls_of_others, 1);
        return false;
    }
    if (is_inside)
        return false;
    is_inside = true;
    stop_meter();
    return true;
}

static int leave(bool is_traced, int code) {
    if (is_traced) {
        is_inside = false;
        start_meter();
    }
    return code;
}

static bool succeeded(bool is_traced, int code, const char *name) {
    if (is_traced && code != MPI_SUCCESS)
        tally(errors, name);
    return is_traced && code == MPI_SUCCESS;
}

/* A message that is longer than its receive is gone all the same. */
static bool has_got(bool is_traced, int code, const char *name) {
    int class = MPI_SUCCESS;
    if (succeeded(is_traced, code, name))
        return true;
    return is_traced && PMPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE;
}

/* ---- The calls: what MPI has twice, with counts of int and of MPI_Count, is written once ------------------------ */

#define UNPACK(...) __VA_ARGS__

/* A call of the program's, with what is done before it, and what once SUCCESS says that it did what it is for. */
#define CALL_IF(SUCCESS, NAME, PARAMETERS, ARGUMENTS, BEFORE, ...)  \
    int NAME PARAMETERS {                                           \
        bool is_traced = enter();                                   \
        BEFORE                                                      \
        int code = P##NAME ARGUMENTS;                               \
        if (SUCCESS(is_traced, code, #NAME)) {                      \
            __VA_ARGS__                                             \
        }                                                           \
        return leave(is_traced, code);                              \
    }
#define CALL(...) CALL_IF(succeeded, __VA_ARGS__)

/* A status where the program wants none. */
#define OWN_STATUS                                      \
    MPI_Status own;                                     \
    if (is_traced && status == MPI_STATUS_IGNORE)       \
        status = &own;
#define COPIED_REQUESTS bool is_copied = is_traced && copy_requests(n, requests);
#define OWN_STATUSES                                        \
    COPIED_REQUESTS                                         \
    if (is_copied && statuses == MPI_STATUSES_IGNORE)       \
        statuses = own_statuses;

#if MPI_VERSION >= 4
#define EACH_COUNT(FORM, NAME, ...)             \
    FORM(MPI_##NAME, int, int, __VA_ARGS__)     \
    FORM(MPI_##NAME##_c, MPI_Count, MPI_Aint, __VA_ARGS__)
#define EACH_COLLECTIVE(FORM, NAME, NONBLOCKING)       \
    FORM(MPI_##NAME, MPI_##NONBLOCKING, int, int)      \
    FORM(MPI_##NAME##_c, MPI_##NONBLOCKING##_c, MPI_Count, MPI_Aint)
#else
#define EACH_COUNT(FORM, NAME, ...) FORM(MPI_##NAME, int, int, __VA_ARGS__)
#define EACH_COLLECTIVE(FORM, NAME, NONBLOCKING) FORM(MPI_##NAME, MPI_##NONBLOCKING, int, int)
#endif

#define INITIALISES(NAME, PARAMETERS, ARGUMENTS)    \
    int NAME PARAMETERS {                           \
        int code = P##NAME ARGUMENTS;               \
        if (code == MPI_SUCCESS)                    \
            begin_trace();                          \
        return code;                                \
    }
INITIALISES(MPI_Init, (int *argc, char ***argv), (argc, argv))
INITIALISES(MPI_Init_thread, (int *argc, char ***argv, int required, int *provided), (argc, argv, required, provided))

/* The module mpi_f08 of MPICH calls PMPI where a call has no buffer, also to initialise: such a program is not seen. */
static void pass_fortran_2008(const char *name, int *error, void *required, void *provided) {
    fprintf(stderr, "dask-efficiency: programs with Fortran's module mpi_f08 are not traced; those with mpi are\n");
    void *symbol = dlsym(RTLD_NEXT, name);
    if (provided) {
        void (*initialise)(void *, void *, int *);
        memcpy(&initialise, &symbol, sizeof symbol);
        initialise(required, provided, error);
    } else {
        void (*initialise)(int *);
        memcpy(&initialise, &symbol, sizeof symbol);
        initialise(error);
    }
}

void mpi_init_f08_(int *error);
void mpi_init_f08_(int *error) {
    pass_fortran_2008("mpi_init_f08_", error, NULL, NULL);
}

void mpi_init_thread_f08_(void *required, void *provided, int *error);
void mpi_init_thread_f08_(void *required, void *provided, int *error) {
    pass_fortran_2008("mpi_init_thread_f08_", error, required, provided);
}

int MPI_Finalize(void) {
    if (enter()) {
        add(FINALIZE);
        PMPI_Group_free(&world_group);
        end();
    }
    return PMPI_Finalize();
}

int MPI_Abort(MPI_Comm comm, int code) {
    if (enter())
        end();
    return PMPI_Abort(comm, code);
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

/* Whether a message is one, and not one to or from nobody. */
static bool is_message(const Group *group, int peer) {
    if (group == NULL || peer == MPI_PROC_NULL)
        return false;
    if (peer_of(group, peer) >= 0)
        return true;
    tally(not_traced, "messages-to-other-worlds");
    return false;
}

static void message(Op op, MPI_Comm comm, int peer, int tag, int64_t count, MPI_Datatype type) {
    Group *group = group_of(comm);
    if (!is_message(group, peer))
        return;
    Record *record = add(op);
    record->peer = peer_of(group, peer);
    record->tag = tag;
    record->group = named(group);
    set_count(record, count, type);
}

/* A buffered send never waits for its receiver. */
static void buffered(Op op, MPI_Comm comm, int peer, int tag, int64_t count, MPI_Datatype type) {
    message(op, comm, peer, tag, count, type);
    has_loose_messages = true;
}

static void message_received(Group *group, const MPI_Status *status, MPI_Datatype type) {
    if (!is_message(group, status->MPI_SOURCE))
        return;
    Record *record = add(RECV);
    record->group = named(group);
    received(record, group, status, type);
}

static void begun(uint64_t key, Op op, bool is_buffered, bool is_persistent, MPI_Comm comm, int peer, int tag,
                  int64_t count, MPI_Datatype type) {
    Group *group = group_of(comm);
    Request *request = group ? new_request(key) : NULL;
    if (request == NULL)
        return;
    request->kind = op == IRECV ? RECEIVING : SENDING;
    request->op = op;
    request->is_buffered = is_buffered;
    request->is_persistent = is_persistent;
    know_request(request, group, peer, tag, count, type);
    if (!is_persistent)
        begin(request);
}

#define BLOCKING_SEND(NAME, COUNT, DISPLACEMENT, RECORDED, OP)                                          \
    CALL(NAME, (const void *buffer, COUNT count, MPI_Datatype type, int peer, int tag, MPI_Comm comm),  \
         (buffer, count, type, peer, tag, comm), , RECORDED(OP, comm, peer, tag, count, type);)
EACH_COUNT(BLOCKING_SEND, Send, message, SEND)
EACH_COUNT(BLOCKING_SEND, Rsend, message, SEND)
EACH_COUNT(BLOCKING_SEND, Ssend, message, SSEND)
EACH_COUNT(BLOCKING_SEND, Bsend, buffered, ISEND)

#define REQUESTED(NAME, COUNT, DISPLACEMENT, BUFFER, OP, IS_BUFFERED, IS_PERSISTENT)                                  \
    CALL(NAME,                                                                                                        \
         (BUFFER buffer, COUNT count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request),     \
         (buffer, count, type, peer, tag, comm, request), ,                                                           \
         begun(key_of(*request), OP, IS_BUFFERED, IS_PERSISTENT, comm, peer, tag, count, type);)
EACH_COUNT(REQUESTED, Isend, const void *, ISEND, false, false)
EACH_COUNT(REQUESTED, Irsend, const void *, ISEND, false, false)
EACH_COUNT(REQUESTED, Issend, const void *, ISSEND, false, false)
EACH_COUNT(REQUESTED, Ibsend, const void *, ISEND, true, false)
EACH_COUNT(REQUESTED, Irecv, void *, IRECV, false, false)
EACH_COUNT(REQUESTED, Send_init, const void *, ISEND, false, true)
EACH_COUNT(REQUESTED, Rsend_init, const void *, ISEND, false, true)
EACH_COUNT(REQUESTED, Ssend_init, const void *, ISSEND, false, true)
EACH_COUNT(REQUESTED, Bsend_init, const void *, ISEND, true, true)
EACH_COUNT(REQUESTED, Recv_init, void *, IRECV, false, true)

#define BLOCKING_RECEIVE(NAME, COUNT, DISPLACEMENT, UNUSED)                                                            \
    CALL_IF(has_got, NAME,                                                                                             \
            (void *buffer, COUNT count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Status *status),      \
            (buffer, count, type, peer, tag, comm, status), OWN_STATUS, message_received(group_of(comm), status, type);)
EACH_COUNT(BLOCKING_RECEIVE, Recv, )

/* Both at once and a wait for both, as the call does: SimGrid's line for it would have no tags. */
static void both_ways(MPI_Comm comm, int destination, int tag, int64_t count, MPI_Datatype type,
                      const MPI_Status *status, MPI_Datatype received_type) {
    Group *group = group_of(comm);
    bool sends = is_message(group, destination), receives = group && is_message(group, status->MPI_SOURCE);
    int source = 0, received_tag = 0;
    if (receives) {
        Record *record = add(IRECV);
        record->group = named(group);
        received(record, group, status, received_type);
        source = record->peer;
        received_tag = record->tag;
    }
    if (sends)
        message(ISEND, comm, destination, tag, count, type);
    if (receives)
        add_wait((Wait){source, world_rank, received_tag});
    if (sends)
        add_wait((Wait){world_rank, peer_of(group, destination), tag});
}

#define SENDRECV(NAME, COUNT, DISPLACEMENT, UNUSED)                                                                   \
    CALL(NAME, (const void *buffer, COUNT count, MPI_Datatype type, int destination, int tag, void *got,              \
                COUNT got_count, MPI_Datatype got_type, int source, int got_tag, MPI_Comm comm, MPI_Status *status),  \
         (buffer, count, type, destination, tag, got, got_count, got_type, source, got_tag, comm, status),            \
         OWN_STATUS, both_ways(comm, destination, tag, count, type, status, got_type);)
EACH_COUNT(SENDRECV, Sendrecv, )

#define SENDRECV_REPLACE(NAME, COUNT, DISPLACEMENT, UNUSED)                                                        \
    CALL(NAME, (void *buffer, COUNT count, MPI_Datatype type, int destination, int tag, int source, int got_tag,   \
                MPI_Comm comm, MPI_Status *status),                                                                \
         (buffer, count, type, destination, tag, source, got_tag, comm, status),                                   \
         OWN_STATUS, both_ways(comm, destination, tag, count, type, status, type);)
EACH_COUNT(SENDRECV_REPLACE, Sendrecv_replace, )

/* ---- Messages that are probed for: mpi4py receives all its objects so ------------------------------------------- */

static void probed(MPI_Comm comm, const MPI_Message *message_found, const MPI_Status *status) {
    uint64_t key = key_of_message(*message_found);
    Group *group = group_of(comm);
    Request *request = group && *message_found != MPI_MESSAGE_NO_PROC ? new_request(key) : NULL;
    if (request == NULL)
        return;
    know_request(request, group, status->MPI_SOURCE, status->MPI_TAG, 0, MPI_BYTE);
    request->kind = PROBED;
}

/* The message that was probed for is received, or begun to be. */
static void matched(uint64_t key, const MPI_Request *request, const MPI_Status *status, int64_t count,
                    MPI_Datatype type) {
    Request *found = find_key(key);
    if (found == NULL)
        return;
    Request probe = *found;
    if (status)
        message_received(probe.group, status, type);
    forget_request(found);
    Request *receive = request ? new_request(key_of(*request)) : NULL;
    if (receive) {
        receive->kind = RECEIVING;
        receive->group = probe.group;
        receive->peer = probe.peer;
        receive->tag = probe.tag;
        receive->count = count;
        receive->type = type;
        begin(receive);
    }
}

CALL(MPI_Mprobe, (int source, int tag, MPI_Comm comm, MPI_Message *found, MPI_Status *status),
     (source, tag, comm, found, status), OWN_STATUS, probed(comm, found, status);)
CALL(MPI_Improbe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Message *found, MPI_Status *status),
     (source, tag, comm, flag, found, status), OWN_STATUS, if (*flag) probed(comm, found, status);)

#define MATCHED_RECEIVE(NAME, COUNT, DISPLACEMENT, UNUSED)                                                     \
    CALL(NAME, (void *buffer, COUNT count, MPI_Datatype type, MPI_Message *found, MPI_Status *status),         \
         (buffer, count, type, found, status), OWN_STATUS uint64_t key = key_of_message(*found);,              \
         matched(key, NULL, status, count, type);)
EACH_COUNT(MATCHED_RECEIVE, Mrecv, )

#define MATCHED_REQUEST(NAME, COUNT, DISPLACEMENT, UNUSED)                                                     \
    CALL(NAME, (void *buffer, COUNT count, MPI_Datatype type, MPI_Message *found, MPI_Request *request),       \
         (buffer, count, type, found, request), uint64_t key = key_of_message(*found);,                        \
         matched(key, request, NULL, count, type);)
EACH_COUNT(MATCHED_REQUEST, Imrecv, )

/* ---- Waits ------------------------------------------------------------------------------------------------------ */

static void started(MPI_Request request) {
    Request *known = find_key(key_of(request));
    if (known)
        begin(known);
}

static void freed(Request *known) {
    if (known->kind == COLLECTIVE && !known->is_written)
        write_collectives(known->group, known);
    if (known->is_active && (known->kind == SENDING || known->kind == RECEIVING)) {
        Record *record = record_at(known->number);
        if (record)
            record->pending = false; /* nobody will say what it gets */
        open_messages -= !known->is_buffered;
        has_loose_messages = true;
    }
    forget_request(known);
}

static bool has_statuses(bool is_traced, int code, const char *name) {
    return succeeded(is_traced, code, name) || (is_traced && code == MPI_ERR_IN_STATUS);
}

CALL(MPI_Start, (MPI_Request *request), (request), , started(*request);)
CALL(MPI_Startall, (int n, MPI_Request requests[]), (n, requests), , for (int i = 0; i < n; i++) started(requests[i]);)
CALL(MPI_Request_free, (MPI_Request *request), (request),
     Request *known = is_traced ? find_key(key_of(*request)) : NULL;, if (known) freed(known);)
CALL_IF(has_got, MPI_Wait, (MPI_Request *request, MPI_Status *status), (request, status),
        OWN_STATUS uint64_t key = key_of(*request);, done(key, status);)
CALL_IF(has_got, MPI_Test, (MPI_Request *request, int *flag, MPI_Status *status), (request, flag, status),
        OWN_STATUS uint64_t key = key_of(*request);, if (*flag) done(key, status);)
CALL_IF(has_statuses, MPI_Waitall, (int n, MPI_Request requests[], MPI_Status statuses[]), (n, requests, statuses),
        OWN_STATUSES, if (is_copied) all_done(n, statuses, code != MPI_SUCCESS);)
CALL(MPI_Testall, (int n, MPI_Request requests[], int *flag, MPI_Status statuses[]), (n, requests, flag, statuses),
     OWN_STATUSES, if (*flag && is_copied) all_done(n, statuses, false);)
CALL(MPI_Waitany, (int n, MPI_Request requests[], int *index, MPI_Status *status), (n, requests, index, status),
     OWN_STATUS COPIED_REQUESTS, if (is_copied && *index != MPI_UNDEFINED) done(keys[*index], status);)
CALL(MPI_Testany, (int n, MPI_Request requests[], int *index, int *flag, MPI_Status *status),
     (n, requests, index, flag, status), OWN_STATUS COPIED_REQUESTS,
     if (is_copied && *flag && *index != MPI_UNDEFINED) done(keys[*index], status);)

#define SOME(NAME)                                                                                      \
    CALL(NAME, (int n, MPI_Request requests[], int *count, int indices[], MPI_Status statuses[]),       \
         (n, requests, count, indices, statuses), OWN_STATUSES,                                         \
         if (is_copied && *count != MPI_UNDEFINED)                                                      \
             for (int i = 0; i < *count; i++)                                                           \
                 done(keys[indices[i]], &statuses[i]);)
SOME(MPI_Waitsome)
SOME(MPI_Testsome)

/* ---- Collectives, each with its nonblocking form ---------------------------------------------------------------- */

#define ONE_COLLECTIVE(NAME, PARAMETERS, ARGUMENTS, ...)                                \
    CALL(NAME, PARAMETERS, ARGUMENTS, , Group *group = group_for(comm, #NAME);          \
         if (group) {                                                                   \
             __VA_ARGS__                                                                \
         })
#define BOTH_FORMS(NAME, NONBLOCKING, PARAMETERS, ARGUMENTS, RECORD)                                                \
    ONE_COLLECTIVE(NAME, (UNPACK PARAMETERS), (UNPACK ARGUMENTS), blocking(group, RECORD);)                         \
    ONE_COLLECTIVE(NONBLOCKING, (UNPACK PARAMETERS, MPI_Request *request), (UNPACK ARGUMENTS, request),             \
                   tally(as_blocking, #NONBLOCKING); nonblocking(group, RECORD, key_of(*request));)

BOTH_FORMS(MPI_Barrier, MPI_Ibarrier, (MPI_Comm comm), (comm), (Record){.op = BARRIER})

#define BCAST_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                               \
    BOTH_FORMS(NAME, NONBLOCKING, (void *buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm), \
               (buffer, count, type, root, comm), simple(BCAST, root, count, type))
EACH_COLLECTIVE(BCAST_FORM, Bcast, Ibcast)

#define REDUCTION(COUNT) const void *sent, void *got, COUNT count, MPI_Datatype type, MPI_Op op
#define REDUCE_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                \
    BOTH_FORMS(NAME, NONBLOCKING, (REDUCTION(COUNT), int root, MPI_Comm comm),             \
               (sent, got, count, type, op, root, comm), simple(REDUCE, root, count, type))
EACH_COLLECTIVE(REDUCE_FORM, Reduce, Ireduce)

#define ALLREDUCE_LIKE(NAME, NONBLOCKING, COUNT, RECORD) \
    BOTH_FORMS(NAME, NONBLOCKING, (REDUCTION(COUNT), MPI_Comm comm), (sent, got, count, type, op, comm), RECORD)
#define ALLREDUCE_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT) \
    ALLREDUCE_LIKE(NAME, NONBLOCKING, COUNT, simple(ALLREDUCE, 0, count, type))
#define SCAN_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT) \
    ALLREDUCE_LIKE(NAME, NONBLOCKING, COUNT, simple(SCAN, 0, count, type))
#define EXSCAN_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT) \
    ALLREDUCE_LIKE(NAME, NONBLOCKING, COUNT, simple(EXSCAN, 0, count, type))
#define REDUCE_SCATTER_BLOCK_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT) \
    ALLREDUCE_LIKE(NAME, NONBLOCKING, COUNT, reduce_scattered(group, COUNTS(COUNT, NULL, type, true), count))
EACH_COLLECTIVE(ALLREDUCE_FORM, Allreduce, Iallreduce)
EACH_COLLECTIVE(SCAN_FORM, Scan, Iscan)
EACH_COLLECTIVE(EXSCAN_FORM, Exscan, Iexscan)

#define COUNTS(COUNT, COUNTS_, TYPE, IS_SIGNIFICANT) counts_of(COUNTS_, sizeof(COUNT), TYPE, IS_SIGNIFICANT)
EACH_COLLECTIVE(REDUCE_SCATTER_BLOCK_FORM, Reduce_scatter_block, Ireduce_scatter_block)

#define SENT(COUNT) const void *sent, COUNT count, MPI_Datatype type
#define GOT(COUNT) void *got, COUNT got_count, MPI_Datatype got_type
#define SENT_EACH(COUNT, DISPLACEMENT) \
    const void *sent, const COUNT counts[], const DISPLACEMENT displacements[], MPI_Datatype type
#define GOT_EACH(COUNT, DISPLACEMENT) \
    void *got, const COUNT got_counts[], const DISPLACEMENT got_displacements[], MPI_Datatype got_type

#define ROOTED_LIKE(NAME, NONBLOCKING, COUNT, RECORD)                                        \
    BOTH_FORMS(NAME, NONBLOCKING, (SENT(COUNT), GOT(COUNT), int root, MPI_Comm comm),        \
               (sent, count, type, got, got_count, got_type, root, comm), RECORD)
#define GATHER_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                                      \
    ROOTED_LIKE(NAME, NONBLOCKING, COUNT,                                                                        \
                both(GATHER, root, sent != MPI_IN_PLACE, count, type, group->rank == root, got_count, got_type))
#define SCATTER_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                                     \
    ROOTED_LIKE(NAME, NONBLOCKING, COUNT,                                                                        \
                both(SCATTER, root, group->rank == root, count, type, got != MPI_IN_PLACE, got_count, got_type))
EACH_COLLECTIVE(GATHER_FORM, Gather, Igather)
EACH_COLLECTIVE(SCATTER_FORM, Scatter, Iscatter)

#define ALL_LIKE(OP, NAME, NONBLOCKING, COUNT)                                               \
    BOTH_FORMS(NAME, NONBLOCKING, (SENT(COUNT), GOT(COUNT), MPI_Comm comm),                  \
               (sent, count, type, got, got_count, got_type, comm),                          \
               both(OP, 0, sent != MPI_IN_PLACE, count, type, true, got_count, got_type))
#define ALLGATHER_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT) ALL_LIKE(ALLGATHER, NAME, NONBLOCKING, COUNT)
#define ALLTOALL_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT) ALL_LIKE(ALLTOALL, NAME, NONBLOCKING, COUNT)
EACH_COLLECTIVE(ALLGATHER_FORM, Allgather, Iallgather)
EACH_COLLECTIVE(ALLTOALL_FORM, Alltoall, Ialltoall)

#define GATHERV_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                                      \
    BOTH_FORMS(NAME, NONBLOCKING, (SENT(COUNT), GOT_EACH(COUNT, DISPLACEMENT), int root, MPI_Comm comm),          \
               (sent, count, type, got, got_counts, got_displacements, got_type, root, comm),                     \
               gathered(GATHERV, group, root, sent != MPI_IN_PLACE, count, type,                                  \
                        COUNTS(COUNT, got_counts, got_type, group->rank == root)))
EACH_COLLECTIVE(GATHERV_FORM, Gatherv, Igatherv)

#define ALLGATHERV_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                                   \
    BOTH_FORMS(NAME, NONBLOCKING, (SENT(COUNT), GOT_EACH(COUNT, DISPLACEMENT), MPI_Comm comm),                    \
               (sent, count, type, got, got_counts, got_displacements, got_type, comm),                           \
               gathered(ALLGATHERV, group, 0, sent != MPI_IN_PLACE, count, type,                                  \
                        COUNTS(COUNT, got_counts, got_type, true)))
EACH_COLLECTIVE(ALLGATHERV_FORM, Allgatherv, Iallgatherv)

#define SCATTERV_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                                     \
    BOTH_FORMS(NAME, NONBLOCKING, (SENT_EACH(COUNT, DISPLACEMENT), GOT(COUNT), int root, MPI_Comm comm),          \
               (sent, counts, displacements, type, got, got_count, got_type, root, comm),                         \
               scattered(group, root, COUNTS(COUNT, counts, type, group->rank == root), got != MPI_IN_PLACE,      \
                         got_count, got_type))
EACH_COLLECTIVE(SCATTERV_FORM, Scatterv, Iscatterv)

#define ALLTOALLV_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                                    \
    BOTH_FORMS(NAME, NONBLOCKING,                                                                                 \
               (SENT_EACH(COUNT, DISPLACEMENT), GOT_EACH(COUNT, DISPLACEMENT), MPI_Comm comm),                    \
               (sent, counts, displacements, type, got, got_counts, got_displacements, got_type, comm),           \
               exchanged(group, sent != MPI_IN_PLACE, COUNTS(COUNT, counts, type, true),                          \
                         COUNTS(COUNT, got_counts, got_type, true)))
EACH_COLLECTIVE(ALLTOALLV_FORM, Alltoallv, Ialltoallv)

#define REDUCE_SCATTER_FORM(NAME, NONBLOCKING, COUNT, DISPLACEMENT)                                               \
    BOTH_FORMS(NAME, NONBLOCKING,                                                                                 \
               (const void *sent, void *got, const COUNT counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),  \
               (sent, got, counts, type, op, comm), reduce_scattered(group, COUNTS(COUNT, counts, type, true), 0))
EACH_COLLECTIVE(REDUCE_SCATTER_FORM, Reduce_scatter, Ireduce_scatter)

/* ---- Communicators ---------------------------------------------------------------------------------------------- */

#define MAKES(NAME, PARAMETERS, ARGUMENTS) CALL(NAME, PARAMETERS, ARGUMENTS, , communicator_made(*made);)
MAKES(MPI_Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
MAKES(MPI_Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *made), (comm, info, made))
MAKES(MPI_Comm_split, (MPI_Comm comm, int colour, int key, MPI_Comm *made), (comm, colour, key, made))
MAKES(MPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
      (comm, type, key, info, made))
MAKES(MPI_Comm_create, (MPI_Comm comm, MPI_Group members, MPI_Comm *made), (comm, members, made))
MAKES(MPI_Comm_create_group, (MPI_Comm comm, MPI_Group members, int tag, MPI_Comm *made), (comm, members, tag, made))
MAKES(MPI_Cart_create, (MPI_Comm comm, int n, const int sizes[], const int periodic[], int reorder, MPI_Comm *made),
      (comm, n, sizes, periodic, reorder, made))
MAKES(MPI_Cart_sub, (MPI_Comm comm, const int kept[], MPI_Comm *made), (comm, kept, made))
MAKES(MPI_Graph_create, (MPI_Comm comm, int n, const int index[], const int edges[], int reorder, MPI_Comm *made),
      (comm, n, index, edges, reorder, made))
MAKES(MPI_Dist_graph_create,
      (MPI_Comm comm, int n, const int sources[], const int degrees[], const int destinations[], const int weights[],
       MPI_Info info, int reorder, MPI_Comm *made),
      (comm, n, sources, degrees, destinations, weights, info, reorder, made))
MAKES(MPI_Dist_graph_create_adjacent,
      (MPI_Comm comm, int n, const int sources[], const int source_weights[], int m, const int destinations[],
       const int weights[], MPI_Info info, int reorder, MPI_Comm *made),
      (comm, n, sources, source_weights, m, destinations, weights, info, reorder, made))
MAKES(MPI_Intercomm_create,
      (MPI_Comm comm, int leader, MPI_Comm peers, int remote_leader, int tag, MPI_Comm *made),
      (comm, leader, peers, remote_leader, tag, made))
MAKES(MPI_Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), (comm, high, made))

#define ENDS(NAME) CALL(NAME, (MPI_Comm *comm), (comm), if (is_traced) forget_group(*comm);, )
ENDS(MPI_Comm_free)
ENDS(MPI_Comm_disconnect)

/* ---- What has no line: its time is not the program's ------------------------------------------------------------ */

#define TIMED(NAME, PARAMETERS, ARGUMENTS) CALL(NAME, PARAMETERS, ARGUMENTS, , )
TIMED(MPI_Probe, (int source, int tag, MPI_Comm comm, MPI_Status *status), (source, tag, comm, status))
TIMED(MPI_Iprobe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status),
      (source, tag, comm, flag, status))
/* Its communicator gets a name with its first collective. */
TIMED(MPI_Comm_idup, (MPI_Comm comm, MPI_Comm *made, MPI_Request *request), (comm, made, request))
TIMED(MPI_Request_get_status, (MPI_Request request, int *flag, MPI_Status *status), (request, flag, status))

/* Counted, so that a reader of the trace knows what it lacks; EITHER with its nonblocking form. */
#define COUNTED(NAME, PARAMETERS, ARGUMENTS) \
    CALL(NAME, PARAMETERS, ARGUMENTS, if (is_traced) tally(not_traced, #NAME);, )
#define EITHER(NAME, NONBLOCKING, PARAMETERS, ARGUMENTS)    \
    COUNTED(NAME, (UNPACK PARAMETERS), (UNPACK ARGUMENTS))  \
    COUNTED(NONBLOCKING, (UNPACK PARAMETERS, MPI_Request *request), (UNPACK ARGUMENTS, request))

EITHER(MPI_Alltoallw, MPI_Ialltoallw,
       (const void *sent, const int counts[], const int at[], const MPI_Datatype types_sent[], void *got,
        const int got_counts[], const int got_at[], const MPI_Datatype got_types[], MPI_Comm comm),
       (sent, counts, at, types_sent, got, got_counts, got_at, got_types, comm))
EITHER(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, (SENT(int), GOT(int), MPI_Comm comm),
       (sent, count, type, got, got_count, got_type, comm))
EITHER(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, (SENT(int), GOT(int), MPI_Comm comm),
       (sent, count, type, got, got_count, got_type, comm))
EITHER(MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, (SENT(int), GOT_EACH(int, int), MPI_Comm comm),
       (sent, count, type, got, got_counts, got_displacements, got_type, comm))
EITHER(MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, (SENT_EACH(int, int), GOT_EACH(int, int), MPI_Comm comm),
       (sent, counts, displacements, type, got, got_counts, got_displacements, got_type, comm))

#define THERE int rank, MPI_Aint at, int there, MPI_Datatype there_type
EITHER(MPI_Put, MPI_Rput, (const void *from, int count, MPI_Datatype type, THERE, MPI_Win window),
       (from, count, type, rank, at, there, there_type, window))
EITHER(MPI_Get, MPI_Rget, (void *to, int count, MPI_Datatype type, THERE, MPI_Win window),
       (to, count, type, rank, at, there, there_type, window))
COUNTED(MPI_Accumulate, (const void *from, int count, MPI_Datatype type, THERE, MPI_Op op, MPI_Win window),
        (from, count, type, rank, at, there, there_type, op, window))
COUNTED(MPI_Get_accumulate,
        (const void *from, int count, MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type, THERE, MPI_Op op,
         MPI_Win window),
        (from, count, type, to, to_count, to_type, rank, at, there, there_type, op, window))
COUNTED(MPI_Fetch_and_op,
        (const void *from, void *to, MPI_Datatype type, int rank, MPI_Aint at, MPI_Op op, MPI_Win window),
        (from, to, type, rank, at, op, window))
COUNTED(MPI_Compare_and_swap,
        (const void *from, const void *with, void *to, MPI_Datatype type, int rank, MPI_Aint at, MPI_Win window),
        (from, with, to, type, rank, at, window))
COUNTED(MPI_Win_fence, (int assertion, MPI_Win window), (assertion, window))
COUNTED(MPI_Win_start, (MPI_Group members, int assertion, MPI_Win window), (members, assertion, window))
COUNTED(MPI_Win_complete, (MPI_Win window), (window))
COUNTED(MPI_Win_post, (MPI_Group members, int assertion, MPI_Win window), (members, assertion, window))
COUNTED(MPI_Win_wait, (MPI_Win window), (window))
COUNTED(MPI_Win_lock, (int type, int rank, int assertion, MPI_Win window), (type, rank, assertion, window))
COUNTED(MPI_Win_lock_all, (int assertion, MPI_Win window), (assertion, window))
COUNTED(MPI_Win_unlock, (int rank, MPI_Win window), (rank, window))
COUNTED(MPI_Win_unlock_all, (MPI_Win window), (window))
COUNTED(MPI_Win_flush, (int rank, MPI_Win window), (rank, window))
COUNTED(MPI_Win_flush_all, (MPI_Win window), (window))

COUNTED(MPI_File_open, (MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file),
        (comm, name, mode, info, file))
COUNTED(MPI_File_close, (MPI_File *file), (file))
#define ACCESS(NAME, BUFFER)                                                                          \
    COUNTED(NAME, (MPI_File file, BUFFER buffer, int count, MPI_Datatype type, MPI_Status *status),   \
            (file, buffer, count, type, status))
#define ACCESS_AT(NAME, BUFFER)                                                                                      \
    COUNTED(NAME, (MPI_File file, MPI_Offset at, BUFFER buffer, int count, MPI_Datatype type, MPI_Status *status),   \
            (file, at, buffer, count, type, status))
ACCESS(MPI_File_read, void *)
ACCESS(MPI_File_read_all, void *)
ACCESS_AT(MPI_File_read_at, void *)
ACCESS_AT(MPI_File_read_at_all, void *)
ACCESS(MPI_File_write, const void *)
ACCESS(MPI_File_write_all, const void *)
ACCESS_AT(MPI_File_write_at, const void *)
ACCESS_AT(MPI_File_write_at_all, const void *)

COUNTED(MPI_Comm_spawn,
        (const char *command, char *arguments[], int n, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made,
         int codes[]),
        (command, arguments, n, info, root, comm, made, codes))

#if MPI_VERSION >= 4
#define ISENDRECV int source, int got_tag, MPI_Comm comm, MPI_Request *request
COUNTED(MPI_Isendrecv, (SENT(int), int rank, int tag, GOT(int), ISENDRECV),
        (sent, count, type, rank, tag, got, got_count, got_type, source, got_tag, comm, request))
COUNTED(MPI_Isendrecv_replace, (void *buffer, int count, MPI_Datatype type, int rank, int tag, ISENDRECV),
        (buffer, count, type, rank, tag, source, got_tag, comm, request))
#define PARTITIONED \
    int n, MPI_Count count, MPI_Datatype type, int rank, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request
COUNTED(MPI_Psend_init, (const void *buffer, PARTITIONED), (buffer, n, count, type, rank, tag, comm, info, request))
COUNTED(MPI_Precv_init, (void *buffer, PARTITIONED), (buffer, n, count, type, rank, tag, comm, info, request))
#define PERSISTENT MPI_Comm comm, MPI_Info info, MPI_Request *request
COUNTED(MPI_Barrier_init, (PERSISTENT), (comm, info, request))
COUNTED(MPI_Bcast_init, (void *buffer, int count, MPI_Datatype type, int root, PERSISTENT),
        (buffer, count, type, root, comm, info, request))
COUNTED(MPI_Allreduce_init, (REDUCTION(int), PERSISTENT), (sent, got, count, type, op, comm, info, request))
COUNTED(MPI_Alltoall_init, (SENT(int), GOT(int), PERSISTENT),
        (sent, count, type, got, got_count, got_type, comm, info, request))
#endif
