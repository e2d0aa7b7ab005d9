/* The two functions that CUPTI gets its buffers from and returns them to: the source of the bytes in callbacks.py.

   CUPTI calls them while it holds locks of its own, from any thread, at any time, the end of the process included. A
   callback in Python would wait there for the GIL, while a thread that holds the GIL and launches a kernel waits for
   CUPTI's lock: a deadlock. So these touch nothing but a table in memory that is never freed.

   tests/adapters/cupti/test_callbacks.py has the commands that make the bytes, and runs what they make. */
#include <stddef.h>
#include <stdint.h>

enum { FREE, LENT, DONE };

struct slot { uint64_t state, valid; };

struct pool {
    uint64_t count, size;
    uint8_t *base;
    /* Requests for which there was no buffer, and buffers that are somebody else's. */
    uint64_t refused, foreign;
    struct slot slots[];
};

/* The address of the table is written here when the bytes are loaded. */
extern __attribute__((visibility("hidden"))) struct pool *const pool_address;

void request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    struct pool *pool = pool_address;
    *max_records = 0;
    for (uint64_t i = 0; i < pool->count; i++) {
        uint64_t expected = FREE;
        if (__atomic_compare_exchange_n(&pool->slots[i].state, &expected, LENT, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            *buffer = pool->base + i * pool->size;
            *size = pool->size;
            return;
        }
    }
    __atomic_fetch_add(&pool->refused, 1, __ATOMIC_RELAXED);
    *buffer = NULL;
    *size = 0;
}

void done(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    struct pool *pool = pool_address;
    uint64_t offset = (uint64_t)(buffer - pool->base);
    if (offset >= pool->count * pool->size) {
        __atomic_fetch_add(&pool->foreign, 1, __ATOMIC_RELAXED);
        return;
    }
    struct slot *slot = &pool->slots[offset / pool->size];
    slot->valid = valid;
    __atomic_store_n(&slot->state, DONE, __ATOMIC_RELEASE);
}

__asm__(".text\n.balign 8\n.hidden pool_address\n.globl pool_address\npool_address: .quad 0\n");
