/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of ports: where the search for MASTER_PORT begins, and what a text
 * says. */
#include <stdlib.h>
#include <string.h>

#include "topology/start/port.h"

/* PLAIT_PORTS over the golden ratio: jobs with neighbouring ids get ports that
 * are far apart. */
#define JOB_STRIDE 2718

int plait_master_port_start(uint32_t job, uint32_t step)
{
    return PLAIT_PORT_FIRST +
           (int)(((uint64_t)job * JOB_STRIDE + step) % PLAIT_PORTS);
}

int plait_master_read_port(const char *text)
{
    char *end;
    long value;

    if (!text || *text < '0' || *text > '9')
        return 0;
    value = strtol(text, &end, 10);
    return value >= 1 && value <= 65535 && strchr(",-", *end) ? (int)value : 0;
}
