#!/bin/sh
# PostgreSQL in the foreground; the first start makes the cluster, the user and the database.
set -eu
bin=$(dirname "$(find /usr/lib/postgresql -name initdb | sort | tail -n 1)")
cluster=/var/lib/parity/postgresql/cluster
password=/run/credentials/database-password
if [ ! -e "$cluster/made" ]; then
    find "$cluster" -mindepth 1 -delete 2>/dev/null || true
    "$bin/initdb" --pgdata="$cluster" --username=gpuaas --pwfile="$password" \
        --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    echo "host all all all scram-sha-256" >>"$cluster/pg_hba.conf"
    echo 'CREATE DATABASE gpuaas' | "$bin/postgres" --single -D "$cluster" postgres
    touch "$cluster/made"
fi
exec "$bin/postgres" -D "$cluster" -c listen_addresses='*' -c unix_socket_directories=/tmp
