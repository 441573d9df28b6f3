/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_GUESTS_H
#define PLAIT_TOPOLOGY_BASE_GUESTS_H

#include <stddef.h>
#include <stdint.h>

/* The connections of a listener that have not yet proved to be of its step.
 * Anybody may connect, so none of them keeps a place: where all are taken, the
 * oldest guest of the address that has most of them is dropped, at once and
 * whether or not it has been answered. Strangers thus drop each other, and a
 * process that proves itself soon after it came is never kept out. */

/* Guests at a time, where the limit of open files allows it. */
enum { PLAIT_GUESTS_MOST = 1024 };

struct plait_guests;
struct plait_guest_host;
struct sockaddr_storage;

struct plait_guest {
    int fd;
    int64_t since; /* when it came, in the caller's time */
    void *own;     /* the caller's, zero at first; freed with the guest */
    /* for guests.c */
    struct plait_guest *newer, *older;
    struct plait_guest_host *host;
};

/* `most` guests, or as many as RLIMIT_NOFILE allows less `reserve` files;
 * `own`: bytes of plait_guest.own. NULL: out of memory. */
struct plait_guests *plait_guests_create(size_t most, size_t reserve,
                                         size_t own);
/* Closes all connections that are left. */
void plait_guests_destroy(struct plait_guests *guests);

/* Add a connection, which may drop another guest. `from` is the peer's address;
 * NULL or an address of another family than IP counts as one address for all.
 * NULL: out of memory; fd is then closed. */
struct plait_guest *plait_guests_add(struct plait_guests *guests, int fd,
                                     const struct sockaddr_storage *from,
                                     int64_t now);
/* Drop the oldest guest of the address that has most, as where accept() finds
 * no file descriptor. Returns how many were dropped: 0 or 1. */
int plait_guests_make_room(struct plait_guests *guests);
/* Close its connection and forget it. */
void plait_guests_drop(struct plait_guests *guests, struct plait_guest *guest);
/* Forget it, and return its connection, which stays open. */
int plait_guests_take(struct plait_guests *guests, struct plait_guest *guest);
/* Drop all that came before `since`; returns how many. */
int plait_guests_drop_before(struct plait_guests *guests, int64_t since);

/* The oldest guest, NULL: none; guest->newer is the next. */
struct plait_guest *plait_guests_oldest(const struct plait_guests *guests);
size_t plait_guests_count(const struct plait_guests *guests);

#endif
