/* The two functions that CUPTI gets its buffers from and returns them to.

   CUPTI calls them while it holds locks of its own, from any thread, at any time, the end of the process included. A
   callback in Python would wait there for the GIL, while a thread that holds the GIL and launches a kernel waits for
   CUPTI's lock: a deadlock. So these functions take no lock, allocate nothing, and touch only a table in memory that is
   never freed. They call nothing either: the library needs neither Python nor the C library.

   build.py compiles this file; callbacks.py loads the result and makes the table. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

/* What a buffer is, as in callbacks.py. */
enum { FREE, LENT, DONE };

struct slot {
    _Atomic uint64_t state;
    /* How many bytes CUPTI has written, once the buffer is DONE. */
    uint64_t valid;
};

/* callbacks.py writes the first three fields, and sees all of them as 64-bit integers. */
struct pool {
    uint64_t count, size;
    uint8_t *base;
    /* Requests for which there was no buffer, and buffers that are somebody else's. */
    _Atomic uint64_t refused, foreign;
    struct slot slots[];
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && sizeof(_Atomic uint64_t) == 8, "atomic integers would take a lock");
_Static_assert(offsetof(struct pool, slots) == 5 * 8 && sizeof(struct slot) == 2 * 8, "callbacks.py has another layout");

/* CUPTI passes its callbacks nothing that could say which pool is meant. */
static struct pool *_Atomic served;

/* Let the callbacks serve this pool from now on; to be called before CUPTI knows them. */
EXPORTED void serve_pool(struct pool *pool)
{
    atomic_store_explicit(&served, pool, memory_order_release);
}

/* A CUpti_BuffersCallbackRequestFunc: lend the first free buffer, or none. */
EXPORTED void request_buffer(uint8_t **buffer, size_t *size, size_t *max_records)
{
    struct pool *pool = atomic_load_explicit(&served, memory_order_acquire);
    *max_records = 0; /* as many as fit */
    for (uint64_t i = 0; i < pool->count; i++) {
        uint64_t expected = FREE;
        if (atomic_compare_exchange_strong_explicit(&pool->slots[i].state, &expected, LENT, memory_order_acq_rel,
                                                    memory_order_relaxed)) {
            *buffer = pool->base + i * pool->size;
            *size = pool->size;
            return;
        }
    }
    atomic_fetch_add_explicit(&pool->refused, 1, memory_order_relaxed);
    *buffer = NULL;
    *size = 0;
}

/* A CUpti_BuffersCallbackCompleteFunc: take a buffer back, whose first `valid` bytes are records. */
EXPORTED void return_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    struct pool *pool = atomic_load_explicit(&served, memory_order_acquire);
    /* An address below the base wraps around, and so is too large. */
    uint64_t offset = (uintptr_t)buffer - (uintptr_t)pool->base;
    if (offset >= pool->count * pool->size) {
        atomic_fetch_add_explicit(&pool->foreign, 1, memory_order_relaxed);
        return;
    }
    struct slot *slot = &pool->slots[offset / pool->size];
    slot->valid = valid;
    /* Whoever sees DONE sees the valid bytes and the records, too. */
    atomic_store_explicit(&slot->state, DONE, memory_order_release);
}
