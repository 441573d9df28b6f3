/* SPDX-License-Identifier: Apache-2.0 */
/* When the watchdog judges what the ranks wait for, and when it ends a run that
 * is quiet. */
#include "config.h"

#include <stdio.h>

#include "runtime/train/watchdog/watchdog_private.h"

/* How often the thread judges what the ranks wait for, once one has waited
 * STILL_S: its own node's ranks each time; all nodes' from FEW_S to MANY_S
 * apart. What is found must be the same AGAIN_S later. */
#define JUDGE_S 1
#define STILL_S 5
#define AGAIN_S 2
#define FEW_S 5
#define MANY_S 60

/* -- ranks that never can go on -------------------------------------------- */

/* Whether it is proved now. Few ranks ask all nodes, and seldom: as a rule
 * others wait for one that is busy. */
static bool prove(struct plait_watchdog *dog, double now, uint64_t *mark,
                  char *why, size_t size)
{
    bool again = dog->judge.found > 0 && dog->judge.all;

    if (!again && plait_hang_prove(dog->hang, false, mark, why, size)) {
        dog->judge.all = false;
        return true;
    }
    if (plait_hang_nodes(dog->hang) == 1 ||
        !plait_hang_is_first_node(dog->hang) ||
        (!again && now < dog->judge.ask))
        return false;
    dog->judge.wait = dog->judge.wait > 0 ? 2 * dog->judge.wait : FEW_S;
    if (dog->judge.wait > MANY_S)
        dog->judge.wait = MANY_S;
    dog->judge.ask = now + dog->judge.wait;
    dog->judge.all = plait_hang_prove(dog->hang, true, mark, why, size);
    return dog->judge.all;
}

static void judge_waits(struct plait_watchdog *dog, double now)
{
    double again =
        AGAIN_S +
        (plait_hang_is_first_node(dog->hang) ? 0 : PLAIT_WATCHDOG_OTHER_NODE_S);
    char why[700], line[900];
    uint64_t mark = 0;

    if (!plait_hang_speaks(dog->hang) ||
        plait_hang_waits(dog->hang) < STILL_S) {
        dog->judge.found = dog->judge.wait = dog->judge.ask = 0;
        return;
    }
    if (dog->judge.found > 0 && now - dog->judge.found < again)
        return;
    if (!prove(dog, now, &mark, why, sizeof(why))) {
        dog->judge.found = 0;
        return;
    }
    if (dog->judge.found > 0 && mark == dog->judge.mark) {
        snprintf(line, sizeof(line),
                 "plait-train: %s; none of them can go on: ended\n", why);
        if (!plait_hang_told(dog->hang)) /* a rank that failed alone says why */
            plait_watchdog_say(line);
        plait_watchdog_end_all(dog);
    }
    dog->judge.found = now;
    dog->judge.mark = mark;
}

/* -- nothing moves --------------------------------------------------------- */

/* Seconds in which something must move. Where a step may take longer, so may
 * what it waits for. */
static double most_quiet(struct plait_watchdog *dog)
{
    double most;

    pthread_mutex_lock(&dog->lock);
    most = dog->phase;
    if (most > 0 && dog->limit > most)
        most = dog->limit;
    if (dog->given > 0)
        most = 0;
    pthread_mutex_unlock(&dog->lock);
    return most;
}

static void end_quiet(struct plait_watchdog *dog, double most)
{
    char why[700], line[1000];

    if (plait_watchdog_is_left(dog) || plait_hang_told(dog->hang))
        goto leave;
    plait_hang_explain(dog->hang, why, sizeof(why));
    snprintf(line, sizeof(line),
             "plait-train: no rank has done anything for %.0f s "
             "(train.phase_timeout): %s; %s\n",
             most, why,
             dog->spare ? "going on without who does not answer" : "ended");
    plait_watchdog_say(line);
    if (!dog->spare)
        plait_hang_tell(dog->hang);
leave:
    pthread_mutex_lock(&dog->lock);
    plait_watchdog_leave(dog);
    pthread_mutex_unlock(&dog->lock);
}

static void judge_quiet(struct plait_watchdog *dog)
{
    double most = most_quiet(dog), over;

    over = plait_hang_idle(dog->hang, false) - most;
    if (most <= 0 || over < 0) {
        dog->judge.quiet = false;
        return;
    }
    if (!dog->judge.quiet)
        plait_hang_note(dog->hang);
    dog->judge.quiet = true;
    if (over < plait_watchdog_delay(dog))
        return;
    if (plait_hang_nodes(dog->hang) == 1 ||
        plait_hang_idle(dog->hang, true) >= most)
        end_quiet(dog, most);
}

void plait_watchdog_judge(struct plait_watchdog *dog, double now)
{
    if (now < dog->judge.next)
        return;
    dog->judge.next = now + JUDGE_S;
    plait_hang_move(dog->hang);
    judge_waits(dog, now);
    plait_hang_alive(dog->hang); /* the nodes were asked for a second */
    judge_quiet(dog);
}
