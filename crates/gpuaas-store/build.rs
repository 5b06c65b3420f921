//! Rebuilds when a migration is added: the migrations are part of the executable.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
