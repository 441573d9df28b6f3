/* SPDX-License-Identifier: Apache-2.0 */
/* Copies to and from pinned memory that the host has not waited for. Until it
 * has, their pages are protected, so that an access anywhere in the program
 * raises SIGSEGV, whose handler knows the copy. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "order.h"

struct flight {
    struct flight *next;
    uintptr_t from, to;
    bool writes; /* the copy writes the buffer */
    int lane;
    unsigned tick;
};

static struct flight *flights;
static struct sigaction before;

static void protect(uintptr_t from, uintptr_t to, int how)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    from &= ~(page - 1);
    to = (to + page - 1) & ~(page - 1);
    if (mprotect((void *)from, to - from, how) < 0)
        abort();
}

/* Buffers that a copy writes come last: they may share a page with others and
 * permit less. */
static void protect_all(void)
{
    for (int writes = 0; writes < 2; writes++)
        for (struct flight *f = flights; f != NULL; f = f->next)
            if (f->writes == writes)
                protect(f->from, f->to, writes ? PROT_NONE : PROT_READ);
}

/* SIGSEGV: reports an access to a copy's buffer. Other data in the same page
 * may be used: the page is unprotected. */
static void at_touch(int signal, siginfo_t *info, void *context)
{
    uintptr_t p = (uintptr_t)info->si_addr;
    const struct emu_memory *m = emu_memory_at(p & ~(uintptr_t)255);
    struct flight *f = flights;
    char text[200];

    (void)signal;
    (void)context;
    if (!emu_memory_is((void *)p) || f == NULL) {
        sigaction(SIGSEGV, &before, NULL);
        return;
    }
    while (f != NULL && !(p >= f->from && p < f->to))
        f = f->next;
    protect(p, p + 1, PROT_READ | PROT_WRITE);
    if (f == NULL)
        return;
    emu_tick_text(f->lane, f->tick, text, sizeof(text));
    emu_fault("streams: the host %s byte %zu of its buffer %u while %s %s it: "
              "the copy was not waited for",
              f->writes ? "uses" : "writes",
              m != NULL ? (size_t)(p - m->from) : 0, m != NULL ? m->number : 0,
              text, f->writes ? "writes" : "reads");
}

static void install(void)
{
    static bool done;
    struct sigaction action = {.sa_sigaction = at_touch,
                               .sa_flags = SA_SIGINFO | SA_NODEFER};

    if (!done)
        sigaction(SIGSEGV, &action, &before);
    done = true;
}

void emu_flight_open(const void *p, size_t bytes)
{
    if (flights != NULL)
        protect((uintptr_t)p, (uintptr_t)p + bytes, PROT_READ | PROT_WRITE);
}

void emu_flight_start(const void *p, size_t bytes, bool writes)
{
    struct flight *f = malloc(sizeof(*f));

    if (f == NULL)
        abort();
    install();
    *f = (struct flight){.next = flights,
                         .from = (uintptr_t)p,
                         .to = (uintptr_t)p + bytes,
                         .writes = writes,
                         .lane = emu_current.lane,
                         .tick = emu_current.tick};
    flights = f;
    protect_all();
}

static void take_out(bool (*is_over)(const struct flight *f, uintptr_t from,
                                     uintptr_t to),
                     uintptr_t from, uintptr_t to)
{
    struct flight **link = &flights;
    bool any = false;

    while (*link != NULL) {
        struct flight *f = *link;

        if (!is_over(f, from, to)) {
            link = &f->next;
            continue;
        }
        protect(f->from, f->to, PROT_READ | PROT_WRITE);
        *link = f->next;
        free(f);
        any = true;
    }
    if (any)
        protect_all();
}

static bool has_landed(const struct flight *f, uintptr_t from, uintptr_t to)
{
    (void)from;
    (void)to;
    return emu_host.at[f->lane] >= f->tick;
}

static bool is_within(const struct flight *f, uintptr_t from, uintptr_t to)
{
    return f->from >= from && f->from < to;
}

void emu_flight_land(void)
{
    take_out(has_landed, 0, 0);
}

void emu_flight_forget(uintptr_t from, uintptr_t to)
{
    take_out(is_within, from, to);
}
