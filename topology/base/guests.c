/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/guests.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEAST = 8, ADDRESS_SIZE = 9 };

/* The guests from one address. */
struct plait_guest_host {
    struct plait_guest_host *next;
    unsigned char address[ADDRESS_SIZE];
    size_t count;
};

struct plait_guests {
    size_t most, own, count;
    struct plait_guest *oldest, *newest;
    struct plait_guest_host *hosts; /* those that have guests */
};

/* What counts as one address: whole IPv4 addresses, but all of 127.0.0.0/8 as
 * one and the first 64 bits of IPv6 addresses, since one machine has all that
 * begin with these. */
static void find_address(const struct sockaddr_storage *from,
                         unsigned char address[ADDRESS_SIZE])
{
    const unsigned char *four = NULL;

    memset(address, 0, ADDRESS_SIZE);
    if (from && from->ss_family == AF_INET)
        four = (const unsigned char *)&((const struct sockaddr_in *)from)
                   ->sin_addr;
    if (from && from->ss_family == AF_INET6) {
        const struct in6_addr *six =
            &((const struct sockaddr_in6 *)from)->sin6_addr;

        if (IN6_IS_ADDR_V4MAPPED(six)) {
            four = six->s6_addr + 12;
        } else {
            address[0] = 6;
            memcpy(address + 1, six->s6_addr, 8);
        }
    }
    if (four) {
        address[0] = 4;
        memcpy(address + 1, four, four[0] == 127 ? 1 : 4);
    }
}

struct plait_guests *plait_guests_create(size_t most, size_t reserve,
                                         size_t own)
{
    struct plait_guests *guests = calloc(1, sizeof(*guests));
    struct rlimit files;

    if (!guests)
        return NULL;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 &&
        files.rlim_cur < most + reserve)
        most = files.rlim_cur > reserve ? files.rlim_cur - reserve : 0;
    guests->most = most < LEAST ? LEAST : most;
    guests->own = own;
    return guests;
}

void plait_guests_destroy(struct plait_guests *guests)
{
    int saved = errno;

    while (guests && guests->oldest)
        plait_guests_drop(guests, guests->oldest);
    free(guests);
    errno = saved;
}

static struct plait_guest_host *find_host(struct plait_guests *guests,
                                          const struct sockaddr_storage *from)
{
    unsigned char address[ADDRESS_SIZE];
    struct plait_guest_host *host;

    find_address(from, address);
    for (host = guests->hosts; host; host = host->next)
        if (memcmp(host->address, address, ADDRESS_SIZE) == 0)
            return host;
    host = calloc(1, sizeof(*host));
    if (host) {
        memcpy(host->address, address, ADDRESS_SIZE);
        host->next = guests->hosts;
        guests->hosts = host;
    }
    return host;
}

static void leave_host(struct plait_guests *guests,
                       struct plait_guest_host *host)
{
    struct plait_guest_host **at = &guests->hosts;

    if (--host->count)
        return;
    while (*at != host)
        at = &(*at)->next;
    *at = host->next;
    free(host);
}

struct plait_guest *plait_guests_add(struct plait_guests *guests, int fd,
                                     const struct sockaddr_storage *from,
                                     int64_t now)
{
    struct plait_guest *guest = calloc(1, sizeof(*guest));
    void *own = calloc(1, guests->own + 1);

    while (guests->count >= guests->most)
        plait_guests_make_room(guests);
    if (!guest || !own || !(guest->host = find_host(guests, from))) {
        if (fd >= 0)
            close(fd);
        free(guest);
        free(own);
        return NULL;
    }
    guest->fd = fd;
    guest->since = now;
    guest->own = own;
    guest->host->count++;
    guest->older = guests->newest;
    *(guests->newest ? &guests->newest->newer : &guests->oldest) = guest;
    guests->newest = guest;
    guests->count++;
    return guest;
}

/* Of addresses with equally many, that of the oldest guest. */
int plait_guests_make_room(struct plait_guests *guests)
{
    struct plait_guest *drop = guests->oldest;

    for (struct plait_guest *g = drop; g; g = g->newer)
        if (g->host->count > drop->host->count)
            drop = g;
    if (!drop)
        return 0;
    plait_guests_drop(guests, drop);
    return 1;
}

int plait_guests_take(struct plait_guests *guests, struct plait_guest *guest)
{
    int fd = guest->fd;

    *(guest->older ? &guest->older->newer : &guests->oldest) = guest->newer;
    *(guest->newer ? &guest->newer->older : &guests->newest) = guest->older;
    guests->count--;
    leave_host(guests, guest->host);
    free(guest->own);
    free(guest);
    return fd;
}

void plait_guests_drop(struct plait_guests *guests, struct plait_guest *guest)
{
    int fd = plait_guests_take(guests, guest);

    if (fd >= 0)
        close(fd);
}

int plait_guests_drop_before(struct plait_guests *guests, int64_t since)
{
    int count = 0;

    for (; guests->oldest && guests->oldest->since < since; count++)
        plait_guests_drop(guests, guests->oldest);
    return count;
}

struct plait_guest *plait_guests_oldest(const struct plait_guests *guests)
{
    return guests->oldest;
}

size_t plait_guests_count(const struct plait_guests *guests)
{
    return guests->count;
}
