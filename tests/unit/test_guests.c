/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tap.h"
#include "topology/base/guests.h"

/* The guests have no connections here but where a test says so. */

static struct sockaddr_storage four(unsigned address)
{
    struct sockaddr_storage at = {.ss_family = AF_INET};

    ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(address);
    return at;
}

static struct sockaddr_storage six(const char *address)
{
    struct sockaddr_storage at = {.ss_family = AF_INET6};

    inet_pton(AF_INET6, address, &((struct sockaddr_in6 *)&at)->sin6_addr);
    return at;
}

static struct plait_guest *come(struct plait_guests *guests, unsigned address,
                                int number, int64_t now)
{
    struct sockaddr_storage from = four(address);
    struct plait_guest *guest = plait_guests_add(guests, -1, &from, now);

    if (guest)
        *(int *)guest->own = number;
    return guest;
}

static struct plait_guest *find(const struct plait_guests *guests, int number)
{
    struct plait_guest *g = plait_guests_oldest(guests);

    while (g && *(int *)g->own != number)
        g = g->newer;
    return g;
}

/* 10,000 strangers from `hosts` addresses that begin at `first`. Every 100th is
 * followed by a member from 10.0.0.1, which answers when `later` more have
 * come. Returns how many of the 100 members still had their connection then. */
static int count_members(unsigned first, unsigned hosts, int later)
{
    enum { STRANGERS = 10000, MEMBER = 1 << 20 };
    struct plait_guests *guests =
        plait_guests_create(PLAIT_GUESTS_MOST, 0, sizeof(int));
    int in = 0;

    for (int i = 1; i <= STRANGERS + later; i++) {
        struct plait_guest *member;

        come(guests, first + (unsigned)i % hosts, i, i);
        if (i % 100 == 0 && i <= STRANGERS)
            come(guests, 0x0a000001, MEMBER + i, i);
        if (i > later && (i - later) % 100 == 0 &&
            (member = find(guests, MEMBER + i - later))) {
            plait_guests_drop(guests, member);
            in++;
        }
        if (plait_guests_count(guests) > PLAIT_GUESTS_MOST)
            in = -STRANGERS;
    }
    plait_guests_destroy(guests);
    return in;
}

static void check_strangers(void)
{
    int in;

    in = count_members(0x0a000002, 1, 9000);
    ok(in == 100,
       "%d of 100 members get in, 9000 strangers from another "
       "address later",
       in);
    /* Not more of its own at a time than each of the strangers' addresses. */
    in = count_members(0x0a000002, 50, 1900);
    ok(in == 100, "%d of 100 get in, 1900 strangers from 50 addresses later",
       in);
    in = count_members(0x0a000001, 1, 1000);
    ok(in == 100,
       "%d of 100 get in, 1000 strangers from the same address later", in);
    in = count_members(0x0a000002, 10000, 90);
    ok(in == 100, "%d of 100 get in, 90 strangers with an address each later",
       in);
}

/* The address with most guests loses its oldest. */
static void check_order(void)
{
    struct plait_guests *guests = plait_guests_create(8, 0, sizeof(int));

    for (int i = 0; i < 3; i++)
        come(guests, 1, i, i);
    for (int i = 3; i < 8; i++)
        come(guests, 2, i, i);
    come(guests, 3, 8, 8);
    ok(find(guests, 0) && !find(guests, 3) && find(guests, 8),
       "the address with most guests loses its oldest");
    come(guests, 3, 9, 9);
    ok(!find(guests, 4), "and its next");
    come(guests, 3, 10, 10);
    ok(!find(guests, 0) && find(guests, 5),
       "of equal ones, the address of the oldest guest");
    ok(plait_guests_drop_before(guests, 7) == 4 &&
           plait_guests_count(guests) == 4 &&
           *(int *)plait_guests_oldest(guests)->own == 7,
       "those that came too long ago are dropped");
    ok(plait_guests_drop_before(guests, 100) == 4 &&
           !plait_guests_oldest(guests) && plait_guests_make_room(guests) == 0,
       "and the last of them");
    plait_guests_destroy(guests);
}

/* Does one machine that takes 8 addresses count as one? */
static int one_address(const struct sockaddr_storage *from)
{
    struct plait_guests *guests = plait_guests_create(8, 0, sizeof(int));
    int one;

    come(guests, 1, 100, 0);
    for (int i = 0; i < 8; i++)
        plait_guests_add(guests, -1, &from[i], 1);
    one = find(guests, 100) != NULL;
    plait_guests_destroy(guests);
    return one;
}

static void check_addresses(void)
{
    struct sockaddr_storage at[8];
    char text[64];

    for (int i = 0; i < 8; i++) {
        snprintf(text, sizeof(text), "2001:db8:0:7::%x", i);
        at[i] = six(text);
    }
    ok(one_address(at), "the addresses of an IPv6 subnet count as one");
    for (int i = 0; i < 8; i++) {
        snprintf(text, sizeof(text), "2001:db8:0:%x::1", i);
        at[i] = six(text);
    }
    ok(!one_address(at), "those of two subnets do not");
    for (int i = 0; i < 8; i++)
        at[i] = i % 2 ? four(0x0a000007) : six("::ffff:10.0.0.7");
    ok(one_address(at), "IPv4 within IPv6 is the same address");
    for (int i = 0; i < 8; i++)
        at[i] = four(0x7f000001u + (unsigned)i);
    ok(one_address(at), "127.0.0.0/8 is one address");
    memset(at, 0, sizeof(at));
    ok(one_address(at), "and so are all that are not IP");
}

static void check_files(void)
{
    struct plait_guests *guests = plait_guests_create(100, 0, 0);
    struct rlimit before, files;
    int fd = open("/dev/null", O_RDONLY), kept = dup(fd), count;
    struct plait_guest *guest = plait_guests_add(guests, kept, NULL, 0);

    ok(plait_guests_take(guests, guest) == kept && fcntl(kept, F_GETFD) == 0,
       "a connection that is taken stays open");
    plait_guests_add(guests, fd, NULL, 0);
    plait_guests_add(guests, kept, NULL, 0);
    plait_guests_drop(guests, plait_guests_oldest(guests));
    ok(fcntl(fd, F_GETFD) < 0, "one that is dropped is closed");
    plait_guests_destroy(guests);
    ok(fcntl(kept, F_GETFD) < 0, "and those that are left at the end");

    getrlimit(RLIMIT_NOFILE, &before);
    files = before;
    files.rlim_cur = 200;
    setrlimit(RLIMIT_NOFILE, &files);
    guests = plait_guests_create(PLAIT_GUESTS_MOST, 60, 0);
    for (int i = 0; i < 1000; i++)
        plait_guests_add(guests, -1, NULL, 0);
    count = (int)plait_guests_count(guests);
    ok(count == 140, "%d guests with 200 files of which 60 are kept", count);
    plait_guests_destroy(guests);
    setrlimit(RLIMIT_NOFILE, &before);
}

int main(void)
{
    check_strangers();
    check_order();
    check_addresses();
    check_files();
    return done_testing();
}
