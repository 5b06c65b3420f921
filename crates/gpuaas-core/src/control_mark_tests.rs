use super::*;

const PACE: ControlPace = ControlPace { look: 60.0, renewal: 300.0 };

fn at(seconds: f64) -> Timestamp {
    Timestamp::EPOCH.plus_seconds(seconds)
}

/// A control plane with its database, and the number of its next write.
#[derive(Debug, Clone)]
struct Plane {
    plane: &'static str,
    name: &'static str,
    writes: u32,
    record: ControlRecord,
}

impl Plane {
    fn new(plane: &'static str) -> Self {
        Self { plane, name: plane, writes: 0, record: ControlRecord::default() }
    }

    /// Another control plane on a copy of the database.
    fn copied(&self, name: &'static str) -> Self {
        let mut copy = Self { name, ..self.clone() };
        copy.record.note_move();
        copy
    }

    fn check(&mut self, mark: &mut Option<ControlClaim>, now: Timestamp) -> ControlLook {
        self.record.note_seen(mark.as_ref());
        let look = decide_control(&self.record, self.plane, mark.as_ref(), PACE, now);
        match look.decision {
            ControlDecision::Keep => {}
            ControlDecision::Become(state) => self.record.state = state,
            ControlDecision::Write(state) => self.write(mark, state, now),
        }
        look
    }

    fn write(&mut self, mark: &mut Option<ControlClaim>, state: ControlState, now: Timestamp) {
        self.writes += 1;
        let writer = format!("{}-{}", self.name, self.writes);
        let claim = self.record.begin_write(self.plane, writer, mark.as_ref(), now);
        self.record.state = state;
        if state == ControlState::Unconfirmed {
            self.record.challenged_at = Some(now);
        }
        *mark = Some(claim);
    }

    fn take(&mut self, mark: &mut Option<ControlClaim>, now: Timestamp) {
        self.record.take(mark.as_ref(), now);
        self.write(mark, ControlState::Held, now);
    }
}

#[test]
fn a_mark_reads_as_it_was_written_and_other_comments_are_none() {
    let region = "0198c5a0-0000-7000-8000-000000000001".to_owned();
    let old = ControlMark { region: region.clone(), claim: None };
    assert_eq!(old.to_string().parse(), Ok(old.clone()));
    let mut mark = None;
    Plane::new("p").check(&mut mark, at(1.5));
    let mark = ControlMark { region, claim: mark };
    assert_eq!(mark.to_string().parse(), Ok(mark.clone()));
    let edited = format!("do not touch (ann) {mark} 2026");
    assert_eq!(edited.parse(), Ok(mark));
    assert_eq!(format!("{old} plane=p writer=w term=x").parse(), Ok(old));
    for other in
        ["", "region", "region=", "the region=is/mine", &format!("region={}", "a".repeat(65))]
    {
        assert_eq!(other.parse::<ControlMark>(), Err(NoMark), "{other}");
    }
}

#[test]
fn a_copy_yields_to_its_original_without_having_changed_anything() {
    let (mut mark, mut original) = (None, Plane::new("p"));
    original.check(&mut mark, at(0.0));
    for copied_at in [1.0, 100.0, 400.0] {
        let (mut mark, mut original) = (mark.clone(), original.clone());
        let mut copy = original.copied("copy");
        for second in (0..1200).map(f64::from).map(|second| copied_at + second) {
            if second % 60.0 == 0.0 {
                original.check(&mut mark, at(second));
            }
            if second % 60.0 == 31.0 {
                copy.check(&mut mark, at(second));
            }
            assert!(!copy.record.may_change(), "copied at {copied_at}, {second}");
            assert!(original.record.may_change(), "copied at {copied_at}, {second}");
        }
        assert_eq!(copy.record.state, ControlState::Yielded);
        copy.take(&mut mark, at(1300.0));
        original.check(&mut mark, at(1320.0));
        assert_eq!(original.record.state, ControlState::Yielded);
        copy.check(&mut mark, at(1380.0));
        assert!(copy.record.may_change());
        original.take(&mut mark, at(1400.0));
        copy.check(&mut mark, at(1440.0));
        original.check(&mut mark, at(1440.0));
        assert!(original.record.may_change() && !copy.record.may_change());
    }
}

/// A region that shows the mark of a control plane that is gone, after it had shown ours in its place,
/// was restored from a backup of that time.
#[test]
fn a_mark_of_another_that_was_written_over_and_comes_back_tells_of_a_restored_region() {
    let (mut mark, mut former) = (None, Plane::new("former"));
    former.check(&mut mark, at(0.0));
    let backup = mark.clone();
    let mut ours = Plane::new("ours");
    let look = ours.check(&mut mark, at(10_000.0));
    assert!(!look.restored && ours.record.may_change());
    // Our write was lost on its way: what is there still is no news.
    let mut lost = ours.clone();
    assert!(!lost.check(&mut backup.clone(), at(10_060.0)).restored);
    assert!(!ours.check(&mut mark, at(10_060.0)).restored);
    mark.clone_from(&backup);
    let look = ours.check(&mut mark, at(10_120.0));
    assert!(look.restored && ours.record.may_change());
    assert_eq!(mark.as_ref().map(|mark| mark.plane.as_str()), Some("ours"), "ours again");
    assert!(!ours.check(&mut mark, at(10_180.0)).restored, "told once");
}

#[test]
fn a_moved_database_goes_on_when_nobody_answers() {
    let (mut mark, mut original) = (None, Plane::new("p"));
    original.check(&mut mark, at(0.0));
    let mut moved = original.copied("moved");
    moved.check(&mut mark, at(10.0));
    moved.check(&mut mark, at(70.0));
    assert!(!moved.record.may_change());
    moved.check(&mut mark, at(90.0));
    assert_eq!(moved.record.state, ControlState::Held);
}

/// A clone of a whole disk has the same place; whoever sees the other's write first yields.
#[test]
fn of_two_that_think_they_are_the_original_one_goes_on() {
    let (mut mark, mut one) = (None, Plane::new("p"));
    one.check(&mut mark, at(0.0));
    let mut two = Plane { name: "two", ..one.clone() };
    for second in (0..40).map(|n| f64::from(n) * 60.0) {
        one.check(&mut mark, at(second));
        two.check(&mut mark, at(second + 30.0));
    }
    assert_ne!(one.record.may_change(), two.record.may_change());
}

#[test]
fn another_control_plane_is_left_alone_while_it_writes_its_mark() {
    let (mut mark, mut first) = (None, Plane::new("p"));
    first.check(&mut mark, at(0.0));
    let mut second = Plane::new("q");
    second.check(&mut mark, at(800.0));
    assert_eq!(second.record.state, ControlState::Yielded);
    let mut later = Plane::new("r");
    later.check(&mut mark, at(1000.0));
    assert_eq!(later.record.state, ControlState::Held, "nobody writes it any more");
    first.check(&mut mark, at(1001.0));
    assert!(first.record.may_change(), "it was there first");
    later.check(&mut mark, at(1060.0));
    assert!(!later.record.may_change());
}

#[test]
fn a_region_of_before_is_no_other_control_plane() {
    let (mut mark, mut plane) = (None, Plane::new("p"));
    plane.check(&mut mark, at(0.0));
    for backup_at in [300.0, 60.0 * 300.0] {
        let mut backup = None;
        for second in (1..200).map(|n| f64::from(n) * 60.0) {
            plane.check(&mut mark, at(backup_at + second));
            backup.get_or_insert_with(|| mark.clone());
        }
        let (mut mark, mut plane) = (backup.unwrap(), plane.clone());
        let now = at(backup_at + 13_000.0);
        assert!(plane.check(&mut mark, now).restored);
        assert!(plane.record.may_change());
        assert!(!plane.check(&mut mark, now.plus_seconds(60.0)).restored, "told once");
        let mut gone = None;
        plane.check(&mut gone, now.plus_seconds(120.0));
        assert!(gone.is_some() && plane.record.may_change());
    }
}

#[test]
fn a_write_whose_answer_was_lost_is_no_other_control_plane() {
    let (mut mark, mut plane) = (None, Plane::new("p"));
    plane.check(&mut mark, at(0.0));
    for (lost, second) in [(true, 300.0), (false, 600.0), (true, 900.0), (true, 1200.0)] {
        let before = mark.clone();
        plane.check(&mut mark, at(second));
        if lost {
            mark = before;
        }
        let look = plane.clone().check(&mut mark.clone(), at(second + 60.0));
        assert!(!look.restored, "{second}");
        assert!(plane.record.may_change());
    }
}
