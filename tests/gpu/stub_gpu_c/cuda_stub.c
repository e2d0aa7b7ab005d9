/* A libcuda with no GPU behind it: the functions that the meter calls to ask what devices there are. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NOT_INITIALIZED = 3, INVALID_DEVICE = 101 };

static int devices, active;
static uint32_t flags;

/* From now on the process has so many devices, with primary contexts or without, whose waits do as the flags say. */
void stub_devices(int count, int contexts, uint32_t schedule)
{
    devices = count;
    active = contexts;
    flags = schedule;
}

int cuDeviceGetCount(int *count) { *count = devices; return devices ? 0 : NOT_INITIALIZED; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < devices ? 0 : INVALID_DEVICE; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }

int cuDevicePrimaryCtxGetState(int device, uint32_t *schedule, int *is_active)
{
    if (!devices) return NOT_INITIALIZED;
    *schedule = flags;
    *is_active = active;
    return device < devices ? 0 : INVALID_DEVICE;
}

int cuDeviceGetUuid_v2(uint8_t *uuid, int device)
{
    for (int i = 0; i < 16; i++) uuid[i] = (uint8_t)(16 * device + i);
    return device < devices ? 0 : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "Stub GPU %d", device);
    return device < devices ? 0 : INVALID_DEVICE;
}
