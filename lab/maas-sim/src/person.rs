//! A person at MAAS' pages or its command line: any call of the API, as the first administrator and
//! outside the statistics, and what a person does that the API has no call for.

use serde_json::Value;

use crate::human_action::HumanError;
use crate::machine_spec::MachineSpec;
use crate::ops;
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimRequest;

impl Region {
    /// Makes a call of the API at `now_us`, simulated microseconds. `path` is below the API's root,
    /// such as `machines/abc123/`; `form` is the body, such as `op=unlock`.
    ///
    /// # Errors
    /// [`HumanError::Refused`] with MAAS' answer.
    pub fn call_as_person(
        &mut self,
        now_us: i64,
        method: &str,
        path: &str,
        form: &str,
    ) -> Result<Value, HumanError> {
        let user = self.accounts.first_admin();
        self.call_as_user(now_us, &user, method, path, form)
    }

    /// As [`Region::call_as_person`], as the administrator `user`.
    ///
    /// # Errors
    /// [`HumanError::Refused`] with MAAS' answer.
    pub fn call_as_user(
        &mut self,
        now_us: i64,
        user: &str,
        method: &str,
        path: &str,
        form: &str,
    ) -> Result<Value, HumanError> {
        self.advance_clock(now_us);
        let request = SimRequest {
            method: method.to_owned(),
            path: format!("{}{path}", ops::API_ROOT),
            body: form.to_owned().into(),
            ..SimRequest::default()
        };
        let response = ops::as_user(self, &request, user);
        if response.status < 300 {
            return Ok(serde_json::from_slice(&response.body).unwrap_or(Value::Null));
        }
        Err(HumanError::Refused { status: response.status, text: response.body_text() })
    }

    /// Turns the DHCP of every VLAN on or off that boot interfaces of the site are on.
    pub fn set_dhcp(&mut self, on: bool) {
        for vlan in self.net.vlans.iter_mut().filter(|vlan| vlan.space == "provisioning") {
            vlan.dhcp = on;
        }
        let keys: Vec<u32> = self.machines.keys().copied().collect();
        for key in keys {
            // What is shown of a machine is kept until it changes.
            self.edit(key, |_| ());
        }
    }

    /// Boots the host of this name from the network, so that MAAS enlists it as New; a host of
    /// another name is a new one. Returns its system id.
    pub fn enlist(&mut self, host: &str) -> String {
        self.add_machine(MachineSpec::new(host, Status::New))
    }

    /// Puts an image of this name beside those that the region has synced.
    pub fn upload_image(&mut self, name: &str) {
        self.images.preload(name);
    }

    /// Does to images what a region controller does when it starts: those that are not complete lose
    /// their bytes.
    pub fn discard_incomplete_images(&mut self) {
        self.images.discard_incomplete();
    }

    /// Has machines take so many seconds more to write an image of this name.
    pub fn set_image_write_seconds(&mut self, name: &str, seconds: f64) {
        self.images.write_seconds.insert(name.to_owned(), seconds);
    }
}
