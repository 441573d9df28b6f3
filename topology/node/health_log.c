/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* SEEK_DATA */
/* NVIDIA's driver writes a line with a number, an Xid, to the kernel log for
 * each error of a GPU. Where users may not read that log (dmesg_restrict), this
 * finds nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "topology/node/health.h"

/* Errors that are older may have been repaired without a new boot. */
enum { HOURS = 24 };
enum { RECORD_SIZE = 8192, RECORDS_MOST = 1 << 20, KINDS = 8, PATH_SIZE = 512 };

/* Those that say that the GPU or its board is broken, and not the program that
 * ran on it (13, 31, 43, 45, ...). */
static const struct {
    int number;
    const char *text;
} broken[] = {
    {48, "an uncorrected memory error"},
    {62, "its controller has stopped"},
    {64, "a broken row or page of memory could not be recorded"},
    {74, "an error of an NVLink"},
    {79, "it did not answer on PCIe any more"},
    {92, "many corrected memory errors"},
    {95, "an uncorrected memory error that was not contained"},
    {119, "its system processor did not answer"},
    {120, "its system processor has failed"},
    {136, "a failed start of an NVLink"},
    {140, "an uncorrected memory error"},
};

/* The last Xid of each kind that was found on a GPU. */
struct last {
    int number, times;
};

static const char *describe(int number)
{
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        if (broken[i].number == number)
            return broken[i].text;
    return NULL;
}

/* A record of /dev/kmsg: "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT". Whether
 * its text is an Xid of a GPU and not too old. */
static bool read_record(const char *record, double now, const char *gpu,
                        int *number)
{
    static const char mark[] = "NVRM: Xid (PCI:";
    const char *text = strchr(record, ';'), *at;
    unsigned long long microseconds;
    unsigned facility; /* times 8, and the priority */

    if (!text ||
        sscanf(record, "%9u,%*u,%llu", &facility, &microseconds) != 2 ||
        now - (double)microseconds / 1e6 > HOURS * 3600.0)
        return false;
    /* "NVRM: Xid (PCI:0000:4b:00): 79, ..": the function may be left out. It is
     * the whole message of the kernel's: some of its others quote what any user
     * has passed to mount(2), and daemons write to the log too. */
    at = text + 1;
    return facility < 8 && strncmp(at, mark, sizeof(mark) - 1) == 0 &&
           strncasecmp(at + sizeof(mark) - 1, gpu, 10) == 0 &&
           (at = strstr(at, "): ")) && sscanf(at, "): %9d", number) == 1;
}

static void note(struct last *last, int n, int number)
{
    for (int i = 0; i < n; i++) {
        if (last[i].number != number && last[i].number)
            continue;
        last[i].number = number;
        last[i].times++;
        return;
    }
}

/* A record; a file that was copied has many. */
static void read_records(char *text, double now, const char *gpu,
                         struct last *last)
{
    char *save;
    int number;

    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        if (read_record(line, now, gpu, &number) && describe(number))
            note(last, KINDS, number);
}

static void read_log(int fd, double now, const char *gpu,
                     struct plait_health *health)
{
    struct last last[KINDS] = {{0, 0}};
    char text[RECORD_SIZE];
    ssize_t n = 1;

    /* What came before the last "dmesg --clear" has been dealt with. */
    if (lseek(fd, 0, SEEK_DATA) < 0)
        lseek(fd, 0, SEEK_SET);
    /* Each read gives one record; with EPIPE some were overwritten. */
    for (int i = 0; i < RECORDS_MOST && n; i++) {
        n = read(fd, text, sizeof(text) - 1);
        if (n < 0 && errno != EPIPE)
            break;
        text[n > 0 ? n : 0] = '\0';
        read_records(text, now, gpu, last);
    }
    for (int i = 0; i < KINDS && last[i].number; i++)
        plait_health_add(health, PLAIT_HEALTH_BAD,
                         "GPU %s: Xid %d, %s, %d in the last %d hours", gpu,
                         last[i].number, describe(last[i].number),
                         last[i].times, HOURS);
}

void node_health_log(const struct plait_health_of *of,
                     struct plait_health *health)
{
    struct timespec now;
    char path[PATH_SIZE];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(path, sizeof(path), "%s/dev/kmsg", of->root);
    for (int i = 0; i < of->ngpus; i++) {
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

        if (fd < 0)
            return;
        read_log(fd, of->up > 0 ? of->up : (double)now.tv_sec, of->gpus[i],
                 health);
        close(fd);
    }
}
