//! Who changes the machines of a region, and a database that was copied.

use std::collections::HashMap;

use gpuaas_core::control_mark::{ControlRecord, ControlState};
use gpuaas_types::SiteId;
use gpuaas_types::api::SiteControl;

use crate::fixture::{Fixture, NOON, at, by_test, id, on_each_database};

#[test]
fn a_record_is_written_over_the_one_that_was_read() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site_id) = (&fixture.store, fixture.site_id);
        assert_eq!(store.site_control(site_id).await.unwrap(), ControlRecord::default());
        let plane = store.plane_identity().await.unwrap();
        let mut record = ControlRecord::default();
        record.begin_write(&plane, "first".to_owned(), None, NOON);
        record.state = ControlState::Held;
        let control = SiteControl { code: "c".to_owned(), text: "t".to_owned(), since: NOON };
        let write = async |known: &ControlRecord, new: &ControlRecord, control| {
            let (known, new) = (known.clone(), new.clone());
            store.set_site_control(at(1.0), site_id, known, new, control, None).await.unwrap()
        };
        assert!(write(&ControlRecord::default(), &record, Some(control.clone())).await);
        assert_eq!(store.site_control(site_id).await.unwrap(), record);
        assert_eq!(store.site(site_id).await.unwrap().status.control, Some(control.clone()));
        let held = store.held_sites([site_id]).await.unwrap();
        assert_eq!(held, HashMap::from([(site_id, control.clone())]));
        assert!(store.held_sites([SiteId(id())]).await.unwrap().is_empty());
        assert!(!write(&ControlRecord::default(), &ControlRecord::default(), None).await);
        assert_eq!(store.site_control(site_id).await.unwrap(), record, "somebody decided before");

        let site = store.site(site_id).await.unwrap();
        store
            .update_site(at(2.0), (site_id, None), site.spec, site.status, None, by_test())
            .await
            .unwrap();
        assert_eq!(store.site(site_id).await.unwrap().status.control, Some(control));
        assert!(write(&record, &record, None).await);
        assert_eq!(store.site(site_id).await.unwrap().status.control, None);
        assert!(store.held_sites([site_id]).await.unwrap().is_empty());

        let again = fixture.database.open().await;
        assert_eq!(again.plane_identity().await.unwrap(), plane);
        let held = again.site_control(site_id).await.unwrap().state;
        assert_eq!(held, ControlState::Held, "it is where it was");
    });
}

#[test]
fn a_restored_database_takes_its_regions_at_an_operators_word() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site_id) = (&fixture.store, fixture.site_id);
        assert_eq!(store.take_control_of_all(NOON).await.unwrap(), 0, "no mark was written yet");
        let record = ControlRecord { state: ControlState::Yielded, term: 3, ..Default::default() };
        let control = SiteControl { code: "c".to_owned(), text: "t".to_owned(), since: NOON };
        let known = ControlRecord::default();
        store.set_site_control(NOON, site_id, known, record, Some(control), None).await.unwrap();
        assert_eq!(store.take_control_of_all(at(9.0)).await.unwrap(), 1);
        let taken = store.site_control(site_id).await.unwrap();
        assert_eq!((taken.state, taken.term, taken.since), (ControlState::Held, 4, Some(at(9.0))));
        assert_eq!(store.site(site_id).await.unwrap().status.control, None);
    });
}

#[test]
fn a_copy_of_a_database_file_knows_that_it_is_elsewhere() {
    on_each_database(|database| async move {
        let file = database.url.strip_prefix("sqlite:").map(std::path::PathBuf::from);
        let fixture = Fixture::new(database).await;
        let (store, site_id) = (&fixture.store, fixture.site_id);
        let mut record = ControlRecord { state: ControlState::Held, ..ControlRecord::default() };
        record.since = Some(NOON);
        let known = ControlRecord::default();
        store.set_site_control(NOON, site_id, known, record, None, None).await.unwrap();
        let Some(file) = file else { return };
        store.close().await;
        let copied = file.with_file_name("copy.db");
        std::fs::copy(&file, &copied).unwrap();
        std::fs::rename(&copied, &file).unwrap();
        let copy = fixture.database.open().await;
        let record = copy.site_control(site_id).await.unwrap();
        assert_eq!((record.state, record.since), (ControlState::Unconfirmed, None));
    });
}
