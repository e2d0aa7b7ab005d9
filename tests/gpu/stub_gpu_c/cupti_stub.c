/* A libcupti with no GPU behind it: it has the functions that the meter calls, writes activity records as CUDA 13.0's library
   does, and calls its client's callbacks under a lock, from threads of the client's and from one of its own.
   Tests say what "kernels" there are through the stub_ functions; see tests/gpu/stub_gpu.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, KERNEL = 10, KINDS = 64, CALLS = 2048 };
enum { OK = 0, INVALID_PARAMETER = 1, INVALID_OPERATION = 7, MAX_LIMIT_REACHED = 12, INVALID_KIND = 21 };
enum { DEVICES = 8, STREAMS = 64, BUFFERS = 1024, FAILURES = 16 };

/* Sizes of the records, by kind: those of CUDA 13.0. */
static const size_t SIZES[KINDS] = {[MEMCPY] = 96, [MEMSET] = 88, [DRIVER] = 40, [RUNTIME] = 40, [KERNEL] = 216};

typedef void (*request_t)(uint8_t **, size_t *, size_t *);
typedef void (*done_t)(void *, uint32_t, uint8_t *, size_t, size_t);

struct buffer { uint8_t *bytes; size_t size, used; done_t done; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static request_t request;
static done_t done;
static struct buffer full[BUFFERS], current;
static size_t full_count, dropped_count;
static uint8_t enabled[KINDS], enabled_calls[2][CALLS];
static int64_t free_at[DEVICES][STREAMS];
static int64_t shift;
static uint32_t version = 130001, correlation, subscribed;
static struct { char name[64]; int code; } failures[FAILURES];
static int delivering;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec + shift;
}

static void sleep_until(int64_t instant)
{
    int64_t left;
    while ((left = instant - now()) > 0) {
        struct timespec t = {left / 1000000000, left % 1000000000};
        nanosleep(&t, NULL);
    }
}

static int failure(const char *name)
{
    for (int i = 0; i < FAILURES; i++)
        if (failures[i].code && !strcmp(failures[i].name, name)) return failures[i].code;
    return OK;
}
#define MAY_FAIL do { int code = failure(__func__); if (code) return code; } while (0)

static uint32_t u32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static int64_t i64(const uint8_t *p) { int64_t v; memcpy(&v, p, 8); return v; }
#define PUT(type, offset, value) do { type v = (type)(value); memcpy(record + (offset), &v, sizeof v); } while (0)

static int is_call(uint32_t kind) { return kind == DRIVER || kind == RUNTIME; }

/* Whether all that the records tell has happened. */
static int complete(struct buffer *b)
{
    int64_t at = now();
    for (size_t i = 0; i < b->used; i += SIZES[u32(b->bytes + i)])
        if (!is_call(u32(b->bytes + i)) && i64(b->bytes + i + 24) > at) return 0;
    return 1;
}

static void deliver(struct buffer *b)
{
    int64_t at = now();
    for (size_t i = 0; i < b->used; i += SIZES[u32(b->bytes + i)])
        if (!is_call(u32(b->bytes + i)) && i64(b->bytes + i + 24) > at) memset(b->bytes + i + 16, 0, 16);
    b->done(NULL, 0, b->bytes, b->size, b->used);
    b->bytes = NULL;
}

static void deliver_full(int forced)
{
    size_t left = 0;
    for (size_t i = 0; i < full_count; i++) {
        if (forced || complete(&full[i])) deliver(&full[i]);
        else full[left++] = full[i];
    }
    full_count = left;
}

static void *deliver_for_ever(void *nothing)
{
    for (;;) {
        struct timespec t = {0, 5000000};
        nanosleep(&t, NULL);
        pthread_mutex_lock(&lock);
        deliver_full(0);
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

/* A place for a record; NULL if the client gave no buffer. */
static uint8_t *place(uint32_t kind)
{
    if (current.bytes && current.used + SIZES[kind] > current.size && full_count < BUFFERS) {
        full[full_count++] = current;
        current.bytes = NULL;
    }
    if (!current.bytes) {
        size_t most = 0;
        if (request) request(&current.bytes, &current.size, &most);
        current.used = 0;
        current.done = done;
    }
    if (!current.bytes || current.used + SIZES[kind] > current.size) {
        dropped_count++;
        return NULL;
    }
    uint8_t *record = current.bytes + current.used;
    current.used += SIZES[kind];
    memset(record, 0, SIZES[kind]);
    PUT(uint32_t, 0, kind);
    return record;
}

static void write_call(uint32_t api, uint32_t cbid, int64_t start, int64_t end, uint32_t id)
{
    if (!enabled[api] && !(cbid < CALLS && enabled_calls[api - DRIVER][cbid])) return;
    uint8_t *record = place(api);
    if (!record) return;
    PUT(uint32_t, 4, cbid);
    PUT(int64_t, 8, start);
    PUT(int64_t, 16, end);
    PUT(uint32_t, 28, (uintptr_t)pthread_self());
    PUT(uint32_t, 32, id);
}

static void write_work(uint32_t kind, int64_t start, int64_t end, uint32_t device, uint32_t stream, uint32_t id, const char *name)
{
    uint8_t *record = enabled[kind] ? place(kind) : NULL;
    if (!record) return;
    int kernel = kind == KERNEL;
    PUT(int64_t, 16, start);
    PUT(int64_t, 24, end);
    PUT(uint32_t, kernel ? 40 : 32, device);
    PUT(uint32_t, kernel ? 48 : 40, stream);
    PUT(uint32_t, kernel ? 92 : 44, id);
    if (kernel) PUT(const char *, 104, name);
}

/* What tests call. */

void stub_reset(void)
{
    pthread_mutex_lock(&lock);
    deliver_full(1);
    if (current.bytes) deliver(&current);
    request = NULL;
    done = NULL;
    memset(enabled, 0, sizeof enabled);
    memset(enabled_calls, 0, sizeof enabled_calls);
    memset(free_at, 0, sizeof free_at);
    memset(failures, 0, sizeof failures);
    dropped_count = 0;
    shift = 0;
    version = 130001;
    subscribed = 0;
    pthread_mutex_unlock(&lock);
}

void stub_version(uint32_t number) { version = number; }
void stub_shift_clock(int64_t ns) { shift = ns; }

void stub_fail(const char *function, int code)
{
    for (int i = 0; i < FAILURES; i++)
        if (!failures[i].code || !strcmp(failures[i].name, function)) {
            strncpy(failures[i].name, function, sizeof failures[i].name - 1);
            failures[i].code = code;
            return;
        }
}

int stub_enabled(uint32_t kind) { return enabled[kind]; }
int stub_enabled_call(uint32_t api, uint32_t cbid) { return enabled_calls[api - DRIVER][cbid]; }

/* The calling thread asks for `count` operations one after another on a stream, and waits for the last if `wait`;
   span receives the start and end of all of them, CLOCK_REALTIME. Returns the correlation id. */
uint32_t stub_work(uint32_t kind, int64_t ns, uint32_t count, uint32_t device, uint32_t stream, const char *name,
                   uint32_t api, uint32_t cbid, int wait, int64_t *span)
{
    int64_t called = now();
    pthread_mutex_lock(&lock);
    uint32_t id = ++correlation;
    int64_t *free_stream = &free_at[device % DEVICES][stream % STREAMS];
    int64_t start = *free_stream > called ? *free_stream : called;
    *free_stream = start + ns * count;
    span[0] = start;
    span[1] = *free_stream;
    for (uint32_t i = 0; i < count; i++)
        write_work(kind, start + i * ns, start + (i + 1) * ns, device, stream, id, name);
    if (!wait) write_call(api, cbid, called, now(), id);
    pthread_mutex_unlock(&lock);
    if (wait) {
        sleep_until(span[1]);
        pthread_mutex_lock(&lock);
        write_call(api, cbid, called, now(), id);
        pthread_mutex_unlock(&lock);
    }
    return id;
}

/* The calling thread waits for a stream, or for a device where stream is negative. */
void stub_wait(uint32_t device, int32_t stream, uint32_t api, uint32_t cbid)
{
    int64_t called = now(), until = 0;
    pthread_mutex_lock(&lock);
    uint32_t id = ++correlation;
    for (int i = 0; i < STREAMS; i++)
        if ((stream < 0 || i == stream % STREAMS) && free_at[device % DEVICES][i] > until) until = free_at[device % DEVICES][i];
    pthread_mutex_unlock(&lock);
    sleep_until(until);
    pthread_mutex_lock(&lock);
    write_call(api, cbid, called, now(), id);
    pthread_mutex_unlock(&lock);
}

/* Another client of CUPTI in this process, as Kineto is one: it counts the records that it gets, and the buffers that it
   never gave out. */
static uint8_t *others[BUFFERS];
static size_t others_count, other_records, other_unknown;

static void other_request(uint8_t **buffer, size_t *size, size_t *records)
{
    *records = 0;
    *size = 65536;
    *buffer = others_count < BUFFERS ? (others[others_count++] = malloc(*size)) : NULL;
}

static void other_done(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    for (size_t i = 0; i < others_count; i++)
        if (others[i] == buffer) {
            for (size_t at = 0; at < valid; at += SIZES[u32(buffer + at)]) other_records++;
            free(buffer);
            others[i] = NULL;
            return;
        }
    other_unknown++;
}

size_t stub_other_records(void) { return other_records; }
size_t stub_other_unknown(void) { return other_unknown; }

/* What the client calls. */

int cuptiGetVersion(uint32_t *number) { MAY_FAIL; *number = version; return OK; }

int cuptiGetResultString(int code, const char **text)
{
    *text = code == OK ? "CUPTI_SUCCESS" : "CUPTI_ERROR_OF_THE_STUB";
    return OK;
}

int cuptiGetTimestamp(uint64_t *ns) { MAY_FAIL; *ns = now(); return OK; }

int cuptiSubscribe(void **subscriber, void *callback, void *data)
{
    (void)callback, (void)data;
    MAY_FAIL;
    if (subscribed) return 39;
    subscribed = 1;
    *subscriber = &subscribed;
    return OK;
}

int cuptiUnsubscribe(void *subscriber) { (void)subscriber; MAY_FAIL; subscribed = 0; return OK; }

int cuptiActivityRegisterCallbacks(request_t r, done_t d)
{
    MAY_FAIL;
    if (!r || !d) return INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    request = r;
    done = d;
    /* As in the real library, what is lent comes back to whoever is registered then. */
    current.done = d;
    for (size_t i = 0; i < full_count; i++) full[i].done = d;
    if (!delivering) {
        pthread_t thread;
        delivering = !pthread_create(&thread, NULL, deliver_for_ever, NULL);
    }
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuptiActivityEnable(uint32_t kind)
{
    MAY_FAIL;
    if (kind >= KINDS || !SIZES[kind]) return INVALID_KIND;
    enabled[kind] = 1;
    return OK;
}

int cuptiActivityDisable(uint32_t kind)
{
    MAY_FAIL;
    if (kind >= KINDS) return INVALID_KIND;
    enabled[kind] = 0;
    if (is_call(kind)) memset(enabled_calls[kind - DRIVER], 0, CALLS);
    return OK;
}

#ifndef WITHOUT_CALL_FILTERS
int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on)
{
    MAY_FAIL;
    if (cbid >= 500) return INVALID_PARAMETER;
    enabled_calls[RUNTIME - DRIVER][cbid] = on;
    return OK;
}

int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on)
{
    MAY_FAIL;
    if (cbid >= CALLS) return INVALID_PARAMETER;
    enabled_calls[0][cbid] = on;
    return OK;
}
#endif

int cuptiActivityFlushAll(uint32_t forced)
{
    MAY_FAIL;
    if (!done) return INVALID_OPERATION;
    pthread_mutex_lock(&lock);
    deliver_full(forced);
    if (current.bytes && (forced || complete(&current))) deliver(&current);
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    MAY_FAIL;
    pthread_mutex_lock(&lock);
    *count = dropped_count;
    dropped_count = 0;
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    MAY_FAIL;
    uint8_t *next = *record ? *record + SIZES[u32(*record) % KINDS] : buffer;
    if (next >= buffer + valid) return MAX_LIMIT_REACHED;
    if (!SIZES[u32(next) % KINDS]) return INVALID_KIND;
    *record = next;
    return OK;
}

/* A profiler of the user's begins, with kernels and all runtime calls, and ends. */
void stub_other_begin(void)
{
    other_records = other_unknown = 0;
    cuptiActivityRegisterCallbacks(other_request, other_done);
    cuptiActivityEnable(KERNEL);
    cuptiActivityEnable(RUNTIME);
}

void stub_other_end(void)
{
    cuptiActivityFlushAll(1);
    cuptiActivityDisable(KERNEL);
    cuptiActivityDisable(RUNTIME);
}
