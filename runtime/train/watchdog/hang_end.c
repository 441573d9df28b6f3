/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/stuck/look.h"
#include "runtime/train/watchdog/hang_private.h"
#include "topology/base/clock.h"

/* The last line of a run: who tells it, and what is told. */

/* Seconds for a lower rank of this node, and for an earlier node, to report why
 * the run ends. */
#define TELL_S 3.0
#define OTHER_NODE_S 1.5
/* From the close of a process's last connection to its end. */
#define GONE_S 2.0
/* How long a line may stand unread in the pipe to the launcher: less than other
 * ranks wait for it before they report themselves. */
#define READ_S 0.4

/* What a rank has told, in its record. */
enum { TOLD = 1, OVER = 2 };

static enum plait_stuck_state state_of(const struct plait_hang *h, int r)
{
    return h->peer[r] ? plait_stuck_state_of((int)h->contacts.all[r].pid)
                      : PLAIT_STUCK_UNKNOWN;
}

/* Whether a lower rank of this node still runs, and can report. */
static bool lower_runs(const struct plait_hang *h)
{
    for (int r = 0; r < h->rank; r++)
        if (state_of(h, r) == PLAIT_STUCK_RUNS)
            return true;
    return false;
}

/* The most that a rank of this node has told. */
static int most_told(const struct plait_hang *h)
{
    int most = 0;

    for (int r = 0; h && r < h->world; r++) {
        int told = h->peer[r] ? atomic_load(&h->peer[r]->told) : 0;

        most = told > most ? told : most;
    }
    return most;
}

bool plait_hang_told(const struct plait_hang *h)
{
    return most_told(h) > 0;
}

static bool ended(const struct plait_hang *h, enum plait_beat_kind kind)
{
    return h && h->beat && plait_heartbeat_ended(h->beat, kind);
}

bool plait_hang_ended(const struct plait_hang *h)
{
    return ended(h, PLAIT_BEAT_END);
}

bool plait_hang_over(const struct plait_hang *h)
{
    return most_told(h) == OVER || ended(h, PLAIT_BEAT_OVER);
}

/* Wait until the launcher has read what this rank has written. It ends the run
 * once others know, and drops what is in the pipe then: slurmstepd closes the
 * pipes of a step that is cancelled. */
static void wait_for_reader(void)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    double begin = plait_clock_now();
    struct stat st;
    int unread = 0;

    if (fstat(STDERR_FILENO, &st) < 0 || !S_ISFIFO(st.st_mode))
        return;
    while (ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0 &&
           plait_clock_now() - begin < READ_S)
        nanosleep(&pause, NULL);
}

static void tell_here(struct plait_hang *h, int what)
{
    wait_for_reader();
    if (h && h->record)
        atomic_store(&h->record->told, what);
}

static void tell(struct plait_hang *h, int what)
{
    tell_here(h, what);
    if (h && h->beat)
        plait_heartbeat_end(h->beat,
                            what == OVER ? PLAIT_BEAT_OVER : PLAIT_BEAT_END);
}

void plait_hang_tell(struct plait_hang *h)
{
    tell(h, TOLD);
}

void plait_hang_tell_here(struct plait_hang *h)
{
    tell_here(h, TOLD);
}

void plait_hang_tell_over(struct plait_hang *h)
{
    tell(h, OVER);
}

bool plait_hang_tells(const struct plait_hang *h)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    double begin = plait_clock_now(), waited;

    while (h) {
        /* Before what they have told is read: a rank reports and then ends. */
        bool lower = lower_runs(h);

        waited = plait_clock_now() - begin;
        if (plait_hang_told(h) || plait_hang_ended(h))
            return false;
        if (waited > TELL_S || (!lower && (waited > OTHER_NODE_S ||
                                           h->contacts.node_of[h->rank] == 0)))
            break;
        nanosleep(&pause, NULL);
    }
    return true;
}

static int find_dead(const struct plait_hang *h)
{
    for (int r = 0; r < h->world; r++)
        if (state_of(h, r) == PLAIT_STUCK_DEAD)
            return r;
    return -1;
}

/* The kernel closes the connections of a process that is killed some time
 * before it counts as dead. */
bool plait_hang_gone(const struct plait_hang *h, char *text, size_t size)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    double begin = plait_clock_now();
    char where[100];
    int r = -1;

    while (h && (r = find_dead(h)) < 0 && plait_clock_now() - begin < GONE_S)
        nanosleep(&pause, NULL);
    if (r < 0)
        return false;
    plait_hang_where(h, r, where, sizeof(where));
    snprintf(text, size, "rank %d (%s)", r, where);
    return true;
}
