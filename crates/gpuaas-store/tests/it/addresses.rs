//! An address is one node's, also where two onboardings name it at the same moment.

use gpuaas_store::NodeFilter;

use crate::fixture::{Fixture, NOON, on_each_database};

const ROUNDS: usize = 20;

#[test]
fn of_two_onboardings_that_name_one_mac_at_once_one_is_accepted() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let stores = [fixture.database.open().await, fixture.database.open().await];
        for round in 0..ROUNDS {
            let one = fixture.onboarding(&format!("one{round}"));
            let mut other = fixture.onboarding(&format!("other{round}"));
            // Not the only one of that machine, and written otherwise.
            let mac = one.node.hardware.mac_addresses[0].to_lowercase();
            other.node.hardware.mac_addresses.push(mac);
            let made = futures::join!(stores[0].onboard(NOON, one), stores[1].onboard(NOON, other));
            let codes: Vec<_> =
                [made.0, made.1].into_iter().filter_map(Result::err).map(|e| e.code()).collect();
            assert_eq!(codes, ["mac_address_taken"], "round {round}");
        }
        let nodes = fixture.store.list_nodes(NodeFilter::default()).await.unwrap();
        assert_eq!(nodes.len(), ROUNDS);
        for store in stores {
            store.close().await;
        }
        fixture.store.close().await;
    });
}
